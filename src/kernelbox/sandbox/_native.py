"""What a configuration comes to on this machine: what a kernel of the native level is confined to."""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys

from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.sandbox._mounts import find_processes, find_twins, read_mounts
from kernelbox.sandbox._paths import absolute, expand, find_protected, outermost, real, real_allowed
from kernelbox.sandbox._rules import PathRules, is_below, parents, resolve
from kernelbox.sandbox._seccomp import ARCHITECTURES, build_filter
from kernelbox.wire._confinement import MOST_MOUNTS, Confinement
from kernelbox.wire._layout import PACKAGES
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelbox.sandbox._sandbox_config import SandboxConfig

# Directories of which each kernel has its own: what others keep in them, sockets above all, is not its business.
_PRIVATE = ("/tmp", "/var/tmp", "/run")  # what is there is hidden

# Of these, too, a kernel has its own, whatever the rules say. A directory in one of them is for what its programs keep.
_OWN = ("/proc", "/dev")
_IN_OWN = tuple(f"{path}/" for path in _OWN)
_SCRATCH = "/dev/shm/.kernelbox"  # which no other program uses

# What the superuser can look at the whole system through.
_SYSTEM = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Names that the default policy hides wherever they are found in the working directory.
_HIDDEN = frozenset({".env"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a kernel is: its directory, what of ours must stay hidden from it, and where it looks for code."""

    cwd: str
    secrets: Sequence[str] = ()
    code: Sequence[str] = ()
    homes: Sequence[str] = field(default_factory=lambda: _home_directories())  # it is defined below


def _home_directories() -> list[str]:
    """Returns the user's home directory by $HOME, which programs that run agents set as they like, and the real one."""
    import pwd

    found = [os.path.expanduser("~")]
    with contextlib.suppress(KeyError):  # containers run users that no database knows
        found.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return found


def refuse_system() -> None:
    """Raises StartFailed where no kernel can be confined at all."""
    if sys.platform != "linux":
        raise StartFailed(
            f"sandboxed kernels need Linux, and this is {sys.platform}; run kernelbox in a virtual machine or "
            "container with Linux, or leave the sandbox out"
        )
    if platform.machine() not in ARCHITECTURES:
        raise StartFailed(
            f"sandboxed kernels need one of {', '.join(ARCHITECTURES)}, and this machine is {platform.machine()}"
        )
    if not os.path.exists("/proc/self/fd"):
        raise StartFailed("sandboxed kernels need /proc, which is not mounted here: use `mount -t proc proc /proc`")


def confine(config: SandboxConfig, place: Surroundings) -> Confinement:
    """Returns what a kernel is confined to; raises InvalidInput or StartFailed for what cannot be honoured."""
    refuse_system()
    machine = platform.machine()
    assert machine in ("x86_64", "aarch64")
    mounts = resolve(find_rules(config, place))
    if len(mounts) > MOST_MOUNTS:
        raise StartFailed(
            f"the sandbox's rules name {len(mounts):,} places here, and {MOST_MOUNTS:,} is the most; deny directories "
            "instead of the files in them"
        )
    program = build_filter(machine, unix_sockets=config.unix_sockets)
    return Confinement(mounts, program, _SCRATCH, _font_lists())


def environment_in_sandbox(given: dict[str, str]) -> dict[str, str]:
    """Returns an environment with what programs in a sandbox must know: where they can write, and not to wait long for
    a network. What pip installs is for this kernel and what it starts."""
    packages = f"{_SCRATCH}/{PACKAGES}"
    return {
        **given,
        "PYTHONPATH": os.pathsep.join(filter(None, (given.get("PYTHONPATH"), packages))),
        "PIP_TARGET": packages,
        "TMPDIR": _PRIVATE[0],
        "XDG_CACHE_HOME": f"{_SCRATCH}/cache",
        "MPLCONFIGDIR": f"{_SCRATCH}/matplotlib",
        "IPYTHONDIR": f"{_SCRATCH}/ipython",
        "PIP_RETRIES": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def find_rules(config: SandboxConfig, place: Surroundings) -> PathRules:
    """Returns the rules for real paths that a configuration and the surroundings of a kernel come to."""
    written = outermost([absolute(path, place.cwd) for path in config.allow_write])
    roots = _known(map(real, written))
    _refuse_home(roots, place.homes)
    secrets = _known(map(real, (*place.secrets, *config.withheld, *_SYSTEM)))
    _refuse_secret_directory(place.cwd, secrets)
    interpreter, private = _interpreter(), _known(map(real, _PRIVATE))
    needed = _needed(place, interpreter, private)
    denied, hidden = _find_denied(config, place, roots)
    denied.update(path for path in interpreter if any(is_below(path, root) for root in roots))
    deny_read = {*_denied_to_read(config, place), *(found for path in hidden if (found := real(path)) is not None)}
    allow_read = _known(
        real_allowed(path, written) for entry in config.allow_read for path in expand(absolute(entry, place.cwd))
    )
    mounts = read_mounts()
    secrets += [*find_twins(secrets, mounts), *_known(map(real, find_processes(mounts)))]
    deny_read |= find_twins(deny_read, mounts) - {*allow_read, *roots, *needed}
    everything = {*denied, *deny_read, *allow_read, *roots, *needed, *secrets}
    return PathRules(
        deny_read=frozenset(deny_read),
        allow_read=frozenset(_without_own(allow_read)),
        allow_write=frozenset(_without_own(roots)),
        deny_write=frozenset(denied),
        private=frozenset(private),
        needed=frozenset(needed),
        secret=frozenset(secrets),
        files=frozenset(path for path in everything if not _is_directory(path)),
    )


def _find_denied(config: SandboxConfig, place: Surroundings, roots: list[str]) -> tuple[set[str], set[str]]:
    """Returns what stays read-only in writable directories, and what there is by a name that is hidden.

    A link stays what it is, and so does what it leads to.
    """
    wanted: set[str] = set()
    hidden: set[str] = set()
    names = _HIDDEN if config.deny_read == (".env",) else frozenset()
    for root in roots:
        protected, named = find_protected(root, config.depth, git_config=config.allow_git_config, hidden=names)
        wanted |= protected
        hidden |= named
    wanted.update(absolute(path, place.cwd) for path in config.deny_write)
    denied: set[str] = set()
    for path in wanted:
        found = real(path)
        if found is None:
            continue
        denied.add(found)
        denied.update(link for link in _links_on(path) if any(is_below(link, root) for root in roots))
    return denied, hidden


def _links_on(path: str) -> list[str]:
    """Returns the links that a path leads through, each by its real place."""
    links = [os.path.split(step) for step in (path, *parents(path)) if os.path.islink(step)]
    return [os.path.join(os.path.realpath(directory), name) for directory, name in links]


def _denied_to_read(config: SandboxConfig, place: Surroundings) -> set[str]:
    found = _known(real(path) for entry in config.deny_read for path in expand(absolute(entry, place.cwd)))
    if "/" in found:  # what a kernel has of its own stays, and so does what is needed to run at all
        found += [entry.path for entry in os.scandir("/") if entry.is_dir(follow_symlinks=False)]
        found = [path for path in found if path not in ("/", "/sys", *_OWN)]
    for path in found:
        if path == "/proc" or is_below(path, "/proc"):
            reason = "a kernel has a /proc of its own, without the processes of others; leave it out"
            raise InvalidInput("sandbox: filesystem.denyRead", path, reason)
    return set(_without_own(found))


def _needed(place: Surroundings, interpreter: list[str], private: list[str]) -> list[str]:
    """Returns what a kernel cannot do without: its directory, the interpreter and its packages, our own code."""
    named = dict.fromkeys((os.path.dirname(sys.executable), *place.code, place.cwd))
    found = _known([*interpreter, *(real(path) for path in named if path)])
    return [path for path in _without_own(found) if path not in private]


def _interpreter() -> list[str]:
    """Returns where programs outside of the sandbox get their code from, too."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, _PACKAGE)
    return [path for path in _known(map(real, dict.fromkeys(prefixes))) if path not in ("/", "/usr")]


def _refuse_home(roots: list[str], homes: Iterable[str]) -> None:
    for home in _known(map(real, homes)):
        for root in roots:
            if home == root or is_below(home, root):
                raise StartFailed(
                    f"a sandboxed kernel may not write to the whole of {root!r}, which has your home directory "
                    f"{home!r} in it: start-up files that are put there would be run outside; use a directory in it "
                    "as the working directory, or name what may be written in allowWrite"
                )


def _refuse_secret_directory(cwd: str, secrets: list[str]) -> None:
    place = real(cwd) or cwd
    for secret in secrets:
        if place == secret or is_below(place, secret):
            raise StartFailed(
                f"a sandboxed kernel cannot work in {cwd!r}, because {secret!r} is kernelbox's own and hidden from it; "
                "choose another working directory, or set KERNELBOX_HOME to another"
            )


def _font_lists() -> dict[str, str]:
    """Returns links to the lists that matplotlib keeps of fonts, which take it seconds to make."""
    cache = os.path.expanduser("~/.cache/matplotlib")
    try:
        names = [name for name in os.listdir(cache) if name.startswith("fontlist-")]
    except OSError:
        return {}
    return {f"{_SCRATCH}/matplotlib/{name}": f"{cache}/{name}" for name in names}


def _is_directory(path: str) -> bool:
    """Tells whether a path is a directory; a link to one is not."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _known(paths: Iterable[str | None]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if path is not None]


def _without_own(paths: list[str]) -> list[str]:
    return [path for path in paths if path not in _OWN and not path.startswith(_IN_OWN)]
