"""The options of a new kernel, as one checked value."""

from __future__ import annotations

import os

from kernelbox.base._errors import InvalidInput
from kernelbox.core._arguments import (
    check_directory,
    check_environment,
    check_kernel_type,
    check_lifetime,
    check_name,
    check_python,
    check_tags,
)
from kernelbox.host.store._record import MAX_RULES
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal

    from kernelbox.base._limits import Limits
    from kernelbox.host.pythons._requirements import Requirements
    from kernelbox.host.store._record import KernelRecord, Lifetime
    from kernelbox.sandbox._sandbox_config import SandboxConfig

    # True for the default, the path of a configuration file, or its content; False for none.
    Sandbox = bool | str | os.PathLike[str] | Mapping[str, Any] | SandboxConfig

    # Whether kernelbox makes it alone, or inside sandbox-runtime.
    SandboxLevel = Literal["native", "srt"]

_NO_SANDBOX = "without sandbox=True, or --sandbox, it would have no effect"


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """The options of `get_or_create` and `create`; None means the value of the configuration or the process."""

    session_name: str | None = None
    tags: dict[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    env: dict[str, str] | None = None
    lifetime: Lifetime = "kernel"
    kernel_type: str | None = None
    limits: Limits | Mapping[str, object] | None = None
    sandbox: Sandbox | None = None
    python: str | os.PathLike[str] | None = None
    requirements: Requirements | Sequence[str] | str | os.PathLike[str] | None = None
    progress: Callable[[str], None] | None = None
    guarded: bool = False

    def ending_with_process(self) -> KernelOptions:
        """Returns the same options for a kernel that must not outlive this process."""
        return self.changed(lifetime="process")

    def changed(self, **changes: Any) -> KernelOptions:
        """Like `dataclasses.replace`, which takes the command line too long to import."""
        return KernelOptions(**{name: getattr(self, name) for name in self.__match_args__} | changes)

    def names(self, name: str) -> list[str]:
        """Returns all names of a kernel that is opened under a name with these options."""
        return [name] if self.session_name is None else [name, check_name(self.session_name)]

    def differences(self, record: KernelRecord, environment: dict[str, str] | None) -> list[str]:
        """Describes how a live kernel differs from these options; raises InvalidInput for impossible options.

        `environment` is what this process gave it, None if it gave none. That of another process is not known.
        """
        found = []
        kernel_type = check_kernel_type(self.kernel_type)
        if kernel_type is not None and kernel_type != record.kernel_type:
            found.append(f"kernel_type={record.kernel_type!r}, not {kernel_type!r}")
        if self.cwd is not None and (cwd := check_directory(self.cwd)) != os.path.realpath(record.cwd):
            found.append(f"cwd={record.cwd!r}, not {cwd!r}")
        if self.session_name is not None and check_name(self.session_name) != record.session_name:
            found.append(f"session_name={record.session_name!r}, not {self.session_name!r}")
        if self.tags is not None and (tags := check_tags(self.tags)) != record.tags:
            found.append(f"tags={record.tags!r}, not {tags!r}")
        if check_lifetime(self.lifetime) != record.lifetime and self.lifetime != "kernel":  # which is the default
            found.append(f"lifetime={record.lifetime!r}, not {self.lifetime!r}")
        found += self.walls_differences(record)
        return found + _environment_differences(check_environment(self.env), record, environment)

    def walls_differences(self, record: KernelRecord) -> list[str]:
        """Describes the requested limits, sandbox, guard and interpreter that a live kernel does not have."""
        guard = ["no guard, not require_shell_escape=True"] if self.guarded and not record.guarded else []
        walls = self.limit_differences(record) + self.sandbox_differences(record) + guard
        return walls + self.python_differences(record)

    def python_differences(self, record: KernelRecord) -> list[str]:
        """Describes how a kernel's interpreter differs from the requested one; empty if none is requested."""
        wanted, required = check_python(self.python), self.required()
        if required is not None and list(required.packages) != record.requirements:
            return [f"requirements={record.requirements}, not {list(required.packages)}"]
        if wanted is None:
            return []
        from kernelbox.host.pythons._searching import is_meant  # few kernels have another interpreter

        cwd = record.cwd if self.cwd is None else check_directory(self.cwd)
        has = record.chosen_python or record.python
        if is_meant(wanted, cwd, has, record.python_version):
            return []
        return [f"python={has!r} (Python {record.python_version}), not {wanted!r}"]

    def limit_differences(self, record: KernelRecord) -> list[str]:
        """Describes the requested limits that a live kernel does not have."""
        limits = _check_limits(self.limits)
        return [] if limits is None else limits.differences(record.limits)

    def looser(self, dead: KernelRecord) -> list[str]:
        """Describes which limits, sandbox rules and interpreter of a dead kernel these options would change."""
        limits = _check_limits(self.limits)
        found = [] if limits is None else limits.excesses(dead.limits)
        found += self.python_differences(dead) if dead.chosen_python or dead.requirements is not None else []
        return found if dead.sandbox is None else found + self.sandbox_differences(dead)

    def limits_within(self, held: Mapping[str, float], configured: Mapping[str, float]) -> Limits | None:
        """Returns the limits of a kernel that must not exceed those that another held."""
        limits = _check_limits(self.limits)
        if not held:
            return limits  # the usual case, kept short because the command line counts milliseconds
        from kernelbox.base._limits import Limits, tightest

        given = {} if limits is None else limits.given
        return Limits(**{**given, **tightest(self.effective_limits(configured), held)})  # type: ignore[arg-type]  # numbers

    def effective_limits(self, configured: Mapping[str, float]) -> dict[str, float]:
        """Returns the limits that a kernel opened with these options has."""
        limits = _check_limits(self.limits)
        if limits is None:
            return {name: amount for name, amount in configured.items() if amount}
        return limits.over(configured)

    def sandbox_differences(self, record: KernelRecord) -> list[str]:
        """Describes how a live kernel's sandbox differs from the requested one; empty if none is requested."""
        if self.sandbox is None:
            return []
        wanted, has = self.sandbox_rules(), record.sandbox_config if record.sandbox is not None else ""
        if wanted == has:
            return []
        if not has or not wanted:
            return [
                "no sandbox, where one is asked for"
                if wanted
                else f"a sandbox ({record.sandbox}), where none is asked for"
            ]
        from kernelbox.sandbox._sandbox_config import SandboxConfig

        return [SandboxConfig.from_text(has).describe_difference(SandboxConfig.from_text(wanted))]

    def sandbox_rules(self) -> str:
        """Returns the sandbox's rules as records store them; "" without a sandbox. Raises InvalidInput."""
        config = self.sandbox_config()
        rules = "" if config is None else config.to_text()
        if len(rules) > MAX_RULES:
            raise InvalidInput.saying(f"sandbox: these rules have more than {MAX_RULES:,} characters; use fewer paths")
        return rules

    def sandbox_config(self) -> SandboxConfig | None:
        """Returns the sandbox that these options request; None for none. Raises InvalidInput."""
        if self.sandbox is None or self.sandbox is False:
            return None
        from kernelbox.sandbox._sandbox_config import check_sandbox  # few kernels have one

        return check_sandbox(self.sandbox)

    def checked(self) -> KernelOptions:
        """Returns the options with copied values and resolved paths; raises InvalidInput."""
        return KernelOptions(
            session_name=None if self.session_name is None else check_name(self.session_name),
            tags=None if self.tags is None else check_tags(self.tags),
            cwd=None if self.cwd is None else check_directory(self.cwd),
            env=check_environment(self.env),
            lifetime=check_lifetime(self.lifetime),
            kernel_type=check_kernel_type(self.kernel_type),
            limits=_check_limits(self.limits),
            sandbox=self.sandbox_config() or self.sandbox,
            guarded=self.guarded,
            python=check_python(self.python),
            requirements=self.required(),
            progress=self.progress,
        )

    def required(self) -> Requirements | None:
        """Returns what the kernel's environment must have; None if none is to be made. Raises InvalidInput."""
        if self.requirements is None:
            return None
        from kernelbox.host.pythons._requirements import check_requirements  # few kernels have any

        return check_requirements(self.requirements)


NO_OPTIONS = KernelOptions()


def choose_sandbox(
    sandbox: Sandbox | None,
    config: str | os.PathLike[str] | None = None,
    level: str | None = None,
    *,
    tokens: str | None = None,
    policy: str | None = None,
) -> SandboxConfig | None:
    """Returns the sandbox that a caller asks for; None for none. Raises InvalidInput.

    `config` is the path of its configuration, for callers whose `sandbox` only switches it on. Kernels of a server can
    neither read its file of `tokens` nor write its `policy`.
    """
    if sandbox is None or sandbox is False:
        for name, given in (("sandbox_config", config), ("sandbox_level", level)):
            if given is not None:
                raise InvalidInput(name, str(given), _NO_SANDBOX)
        return None
    from kernelbox.sandbox._sandbox_config import check_level, check_sandbox, read_config

    chosen = check_level("native" if level is None else level)
    rules = check_sandbox(sandbox, level=chosen) if config is None else read_config(config, level=chosen)
    assert rules is not None, "it was asked for"
    hidden, kept = ([os.path.abspath(os.path.expanduser(path))] if path else [] for path in (tokens, policy))
    return rules.protecting(hidden, kept)


def _check_limits(limits: Limits | Mapping[str, object] | None) -> Limits | None:
    """Returns Limits; None if no limit is set. Raises InvalidInput."""
    if limits is None:
        return None  # the usual case, kept short because the command line counts milliseconds
    from kernelbox.base._limits import check_limits

    checked = check_limits(limits)
    return checked if checked is not None and checked.given else None


def _environment_differences(
    wanted: dict[str, str] | None, record: KernelRecord, given: dict[str, str] | None
) -> list[str]:
    """Names the variables that differ, without their values, which may be secrets."""
    if wanted is None:
        return []
    if record.environment == "caller":
        return ["the environment of the process that opened it, not env="]
    if given is None or given == wanted:
        return []
    names = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
    return [f"an env= with another {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"]
