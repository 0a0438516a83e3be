"""What a caller may ask of a new kernel, as one checked value."""

from __future__ import annotations

import os

from kernelbox.core._arguments import (
    check_directory,
    check_environment,
    check_kernel_type,
    check_lifetime,
    check_name,
    check_tags,
)
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelbox.base._limits import Limits
    from kernelbox.host._record import KernelRecord, Lifetime


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """The options of `get_or_create` and `create`; None stands for what the configuration or the process has."""

    session_name: str | None = None
    tags: dict[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    env: dict[str, str] | None = None
    lifetime: Lifetime = "kernel"
    kernel_type: str | None = None
    limits: Limits | Mapping[str, object] | None = None

    def with_env(self, env: dict[str, str]) -> KernelOptions:
        """Returns the same options with an environment."""
        return KernelOptions(self.session_name, self.tags, self.cwd, env, self.lifetime, self.kernel_type, self.limits)

    def names(self, name: str) -> list[str]:
        """Returns all that a kernel opened under a name with these options will be found by."""
        return [name] if self.session_name is None else [name, check_name(self.session_name)]

    def differences(self, record: KernelRecord, environment: dict[str, str] | None) -> list[str]:
        """Says what these options ask for that a live kernel is not; raises InvalidInput for what no kernel can be.

        `environment` is what this process gave it, None if it gave none. What another process gave is not known.
        """
        found = []
        kernel_type = check_kernel_type(self.kernel_type)
        if kernel_type is not None and kernel_type != record.kernel_type:
            found.append(f"kernel_type={record.kernel_type!r}, not {kernel_type!r}")
        if self.cwd is not None and os.path.realpath(cwd := check_directory(self.cwd)) != os.path.realpath(record.cwd):
            found.append(f"cwd={record.cwd!r}, not {cwd!r}")
        if self.session_name is not None and check_name(self.session_name) != record.session_name:
            found.append(f"session_name={record.session_name!r}, not {self.session_name!r}")
        if self.tags is not None and (tags := check_tags(self.tags)) != record.tags:
            found.append(f"tags={record.tags!r}, not {tags!r}")
        if check_lifetime(self.lifetime) != record.lifetime and self.lifetime != "kernel":  # which is the default
            found.append(f"lifetime={record.lifetime!r}, not {self.lifetime!r}")
        found += self.limit_differences(record)
        return found + _environment_differences(check_environment(self.env), record, environment)

    def limit_differences(self, record: KernelRecord) -> list[str]:
        """Says which of the limits that are asked for a live kernel does not have."""
        limits = _check_limits(self.limits)
        return [] if limits is None else limits.differences(record.limits)

    def effective_limits(self, configured: Mapping[str, float]) -> dict[str, float]:
        """Returns the limits that a kernel opened with these options has."""
        limits = _check_limits(self.limits)
        if limits is None:
            return {name: amount for name, amount in configured.items() if amount}
        return limits.over(configured)

    def checked(self) -> KernelOptions:
        """Returns the options with their values copied and made absolute; raises InvalidInput."""
        return KernelOptions(
            session_name=None if self.session_name is None else check_name(self.session_name),
            tags=check_tags({} if self.tags is None else self.tags),
            cwd=check_directory(self.cwd),
            env=check_environment(self.env),
            lifetime=check_lifetime(self.lifetime),
            kernel_type=check_kernel_type(self.kernel_type),
            limits=_check_limits(self.limits),
        )


def _check_limits(limits: Limits | Mapping[str, object] | None) -> Limits | None:
    if limits is None:
        return None  # most kernels have none, and the command line counts milliseconds
    from kernelbox.base._limits import check_limits

    return check_limits(limits)


def _environment_differences(
    wanted: dict[str, str] | None, record: KernelRecord, given: dict[str, str] | None
) -> list[str]:
    """Names the variables that differ, and no values: they may be secrets."""
    if wanted is None:
        return []
    if record.environment == "caller":
        return ["the environment of the process that opened it, not env="]
    if given is None or given == wanted:
        return []
    names = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
    return [f"an env= with another {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"]
