"""A kernel's own directory, as the rest of the host uses it: opened for each use, by way of a home that is trusted."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._home import Trusted
    from kernelbox.host.files._place import Place


class KernelDirectory:
    """Leads to a kernel's directory. `path` is for messages, and for programs of others that need a path."""

    __slots__ = ("_kernel_id", "_root", "path")

    def __init__(self, root: Trusted, runtime_dir: str, kernel_id: str) -> None:
        self.path = f"{runtime_dir}/{kernel_id}"
        self._root = root
        self._kernel_id = kernel_id

    def __repr__(self) -> str:
        return f"<KernelDirectory {self.path!r}>"

    def open(self) -> Place:
        """Opens the directory; raises FileNotFoundError if it is gone, StoreFailed if it is not ours."""
        with self.runtime() as runtime:
            return runtime.enter(self._kernel_id)

    def runtime(self) -> Place:
        """Opens the runtime directory that it is in."""
        return self._root.open()

    def secret(self) -> bytes:
        """Returns what hosts sign with, and no file in the directory shows."""
        return self._root.secret()

    def sign(self, *facts: object) -> str:
        """Returns what shows that a host of this user has written something about the kernel, and no cell."""
        from _blake2 import blake2b  # hashlib has the same, and takes 5 ms to import, because it loads OpenSSL

        text = "\0".join(map(str, (self._kernel_id, *facts)))
        return blake2b(text.encode("utf-8", "surrogatepass"), key=self.secret(), digest_size=32).hexdigest()

    def exists(self) -> bool:
        """Tells whether the directory is there, and ours."""
        try:
            self.open().close()
        except OSError:
            return False
        return True

    def path_of(self, name: str) -> str:
        """Returns the path of an entry, for messages."""
        return f"{self.path}/{name}"
