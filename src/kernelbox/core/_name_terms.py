"""The terms of a name: what its kernel was opened with. They are in the signed record, and end when it is destroyed.

A kernel that follows a dead one has the same sandbox, limits, guard, interpreter, directory, tags and session name. So
a cell gains nothing by ending its kernel, or by making the next start fail: the record of the dead one goes only after
that start.
"""

from __future__ import annotations

import os
import stat

from kernelbox.base._environment import scrubbed_environment
from kernelbox.base._errors import KernelExists, KernelNotFound, StartFailed
from kernelbox.core._arguments import check_directory, check_tags
from kernelbox.core._options import KernelOptions
from kernelbox.host.process._process import boot_id
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelbox.core._kernels import Kernels
    from kernelbox.host.process._process import ProcessIdentity
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.sandbox._sandbox_config import SandboxConfig


@dataclass(frozen=True, slots=True)
class Terms:
    """What a kernel is opened with, checked. `owner` is the process that it must not outlive, if not this one."""

    name: str
    options: KernelOptions
    cwd: str
    cwd_identity: str
    owner: ProcessIdentity | None = None


def terms_of(name: str, options: KernelOptions) -> Terms:
    """Returns the terms of a name that no kernel has; raises InvalidInput."""
    options = options.checked()
    cwd = check_directory(None) if options.cwd is None else str(options.cwd)
    return Terms(name, options, cwd, _identify(cwd))


def terms_after(
    dead: KernelRecord,
    name: str,
    options: KernelOptions,
    environment: dict[str, str] | None,
    configured: Mapping[str, float],
    *,
    as_it_is: bool,
) -> Terms:
    """Returns the terms of the kernel that follows a dead one; raises KernelExists for options that would loosen them.

    Options may add a sandbox, a guard and limits, and lower limits. What they leave out stays as it was. They decide
    on the directory, unless the kernel is to be taken `as_it_is`: then theirs is for new names. `environment` is what
    this process gave the dead kernel. What another process gave is not known, and the host's own may hold secrets.
    """
    if looser := options.looser(dead):
        raise KernelExists(dead.name, looser, dead=True)
    given = options.checked()
    is_moved = dead.sandbox is None and given.sandbox_config() is not None  # rules and directory belong together
    own = terms_of(name, options) if is_moved or (given.cwd is not None and not as_it_is) else None
    lives_on = dead.lifetime == "process" and dead.owner is not None and dead.owner.alive
    env = environment if given.env is None else given.env
    merged = KernelOptions(
        session_name=dead.session_name if given.session_name is None else given.session_name,
        tags=dead.tags if given.tags is None else given.tags,
        env=withheld(dead) if env is None else env,
        lifetime="process" if lives_on else given.lifetime,
        kernel_type=given.kernel_type or dead.kernel_type,
        limits=given.limits_within(dead.limits, configured),
        sandbox=given.sandbox if dead.sandbox is None else _rules_of(dead),
        guarded=given.guarded or dead.guarded,
        python=dead.chosen_python or given.python,
        requirements=given.requirements if dead.requirements is None else dead.requirements,
        progress=given.progress,
    )
    return Terms(
        dead.name if given.session_name is None else name,
        merged,
        dead.cwd if own is None else own.cwd,
        dead.cwd_identity if own is None else own.cwd_identity,
        dead.owner if lives_on else None,
    )


def withheld(record: KernelRecord) -> dict[str, str] | None:
    """Returns what a new process of a kernel gets instead of an environment that only its opener knows.

    It never gets the caller's own: a kernel with chosen variables must not get the host's secrets instead.
    """
    return scrubbed_environment({}) if record.environment == "given" else None


def retag(kernels: Kernels, kernel_id: str, changes: Mapping[str, str | None]) -> KernelRecord:
    """Sets tags, and removes those that are None; raises KernelNotFound, and InvalidInput for too many."""
    record = kernels.get(kernel_id)
    with kernels.store.locking(*record.names):
        current = kernels.store.get(record.kernel_id)
        if current is None:
            raise KernelNotFound(kernel_id)
        kept = {name: value for name, value in current.tags.items() if name not in changes}
        set_now = {name: value for name, value in changes.items() if value is not None}
        current.tags = check_tags({**kept, **set_now})
        kernels.store.publish(current)
        return kernels.condition.refresh(current)


def require_directory(record: KernelRecord) -> None:
    """Raises StartFailed unless the working directory of a kernel is the one that it was opened in.

    A sandboxed kernel may write there, and another one's cell may have put a link or another directory in its place.
    A plain kernel, and any kernel after a restart of the machine, may also have a new directory at the same path.
    """
    wrong = "is gone"
    found = _identify(record.cwd)
    if found and record.cwd_identity in ("", found):
        return
    if found:
        wrong = "was replaced by another one, or by a link"
        may_be_another = record.sandbox is None or record.cwd_identity.partition("/")[0] != boot_id()
        if may_be_another and os.path.realpath(record.cwd) == record.cwd:
            record.cwd_identity = found
            return
    raise StartFailed(
        f"kernel {record.name!r} cannot be started, because its working directory {record.cwd!r} {wrong}: put that "
        "directory back, or destroy the kernel and create it elsewhere"
    )


def _identify(path: str) -> str:
    """Returns what tells a directory from others as long as the machine runs; "" if there is none."""
    try:
        info = os.stat(path)
    except OSError:
        return ""
    return f"{boot_id()}/{info.st_dev:x}/{info.st_ino:x}" if stat.S_ISDIR(info.st_mode) else ""


def _rules_of(record: KernelRecord) -> SandboxConfig:
    from kernelbox.sandbox._sandbox_config import SandboxConfig  # few kernels have one

    try:
        return SandboxConfig.from_text(record.sandbox_config)
    except (ValueError, TypeError) as exc:
        raise StartFailed(
            f"the rules of the sandbox of kernel {record.name!r} were damaged ({exc}); destroy the kernel, and create "
            "it again"
        ) from exc
