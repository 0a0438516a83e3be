"""What a caller may ask of a new kernel, as one checked value."""

from __future__ import annotations

from kernelbox.core._arguments import (
    check_directory,
    check_environment,
    check_lifetime,
    check_name,
    check_tags,
)
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from kernelbox.host._record import Lifetime


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """The options of `get_or_create` and `create`; None stands for what the configuration or the process has."""

    session_name: str | None = None
    tags: dict[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    env: dict[str, str] | None = None
    lifetime: Lifetime = "kernel"
    kernel_type: str | None = None

    def with_env(self, env: dict[str, str]) -> KernelOptions:
        """Returns the same options with an environment."""
        return KernelOptions(self.session_name, self.tags, self.cwd, env, self.lifetime, self.kernel_type)

    def names(self, name: str) -> list[str]:
        """Returns all that a kernel opened under a name with these options will be found by."""
        return [name] if self.session_name is None else [name, check_name(self.session_name)]

    def checked(self) -> KernelOptions:
        """Returns the options with their values copied and made absolute; raises InvalidInput."""
        return KernelOptions(
            session_name=None if self.session_name is None else check_name(self.session_name),
            tags=check_tags(self.tags or {}),
            cwd=check_directory(self.cwd),
            env=check_environment(self.env),
            lifetime=check_lifetime(self.lifetime),
            kernel_type=self.kernel_type,
        )
