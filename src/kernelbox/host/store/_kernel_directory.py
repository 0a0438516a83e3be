"""A kernel's own directory, which the host opens anew for each use, through a trusted home."""

from __future__ import annotations

from kernelbox.host.files._key import sign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._home import Trusted
    from kernelbox.host.files._place import Place


class KernelDirectory:
    """A reference to a kernel's directory. `path` is for messages, and for other programs that need a path."""

    __slots__ = ("_kernel_id", "_root", "path")

    def __init__(self, root: Trusted, runtime_dir: str, kernel_id: str) -> None:
        self.path = f"{runtime_dir}/{kernel_id}"
        self._root = root
        self._kernel_id = kernel_id

    def open(self) -> Place:
        """Opens the directory; raises FileNotFoundError if it is gone, StoreFailed if it is not trusted."""
        with self.runtime() as runtime:
            return runtime.enter(self._kernel_id)

    def runtime(self) -> Place:
        return self._root.open()

    def secret(self) -> bytes:
        """Returns the key that hosts sign with; cells cannot read it from the directory."""
        return self._root.secret()

    def sign(self, *facts: object) -> str:
        """Returns a signature over facts about the kernel, which only hosts of this user can make."""
        text = "\0".join(map(str, (self._kernel_id, *facts)))
        return sign(text.encode("utf-8", "surrogatepass"), self.secret())

    def exists(self) -> bool:
        """Tells whether the directory exists and is trusted."""
        try:
            self.open().close()
        except OSError:
            return False
        return True

    def path_of(self, name: str) -> str:
        """Returns the path of an entry, for messages."""
        return f"{self.path}/{name}"
