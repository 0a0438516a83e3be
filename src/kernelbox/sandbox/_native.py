"""Works out what a kernel is confined to at the native level, from its configuration and this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys

from kernelbox.base._cell_places import first_planted_link
from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.base._interpreter import Interpreter, own_interpreter
from kernelbox.sandbox._mounts import find_processes, find_twins, read_mounts
from kernelbox.sandbox._path_rules import PathRules, is_below, parents, resolve
from kernelbox.sandbox._paths import absolute, expand, find_protected, outermost, real, real_allowed
from kernelbox.sandbox._sandbox_config import HIDDEN
from kernelbox.sandbox._seccomp import ARCHITECTURES, build_filter
from kernelbox.wire._confinement import MOST_MOUNTS, Confinement
from kernelbox.wire._layout import PACKAGES
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelbox.sandbox._sandbox_config import SandboxConfig

# Each kernel has its own empty version of these directories. Other programs keep sockets and files in the real ones.
_PRIVATE = ("/tmp", "/var/tmp", "/run")

# A kernel always has its own version of these too, and no rule can change that.
_OWN = ("/proc", "/dev")
_IN_OWN = tuple(f"{path}/" for path in _OWN)

# Where programs in the sandbox keep caches and packages. No other program uses this directory.
_SCRATCH = "/dev/shm/.kernelbox"

# Here the superuser can inspect the whole system.
_SYSTEM = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Where a system keeps its programs and libraries. A rule whose path leads there through a cell's link hides nothing.
_VITAL = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev", "/run", "/var")

# The most protected names in one writable directory. With more of them, whole folders become read-only.
_MOST_PROTECTED = 10_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a kernel runs: its directory, the files of kernelbox to hide from it, its interpreter and other code."""

    cwd: str
    secrets: Sequence[str] = ()
    code: Sequence[str] = ()
    interpreter: Interpreter = field(default_factory=own_interpreter)
    homes: Sequence[str] = field(default_factory=lambda: _home_directories())  # it is defined below


def _home_directories() -> list[str]:
    """Returns the home directory by $HOME, which programs that run agents may change, and the one of the account."""
    import pwd

    found = [os.path.expanduser("~")]
    with contextlib.suppress(KeyError):  # in a container the user may have no entry
        found.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return found


def refuse_system() -> None:
    """Raises StartFailed if this system cannot confine kernels at all."""
    if sys.platform != "linux":
        raise StartFailed(
            f"sandboxed kernels need Linux, and this is {sys.platform}; run kernelbox in a virtual machine or "
            "container with Linux, or leave the sandbox out"
        )
    if platform.machine() not in ARCHITECTURES:
        raise StartFailed(
            f"sandboxed kernels need a machine of {' or '.join(ARCHITECTURES)}, and this one is {platform.machine()}"
        )
    if not os.path.exists("/proc/self/fd"):
        raise StartFailed("sandboxed kernels need /proc, which is not mounted here: use `mount -t proc proc /proc`")


def confine(config: SandboxConfig, place: Surroundings) -> Confinement:
    """Returns what a kernel is confined to; raises InvalidInput or StartFailed if the rules cannot be enforced."""
    refuse_system()
    machine = platform.machine()
    assert machine in ("x86_64", "aarch64")
    mounts = resolve(find_rules(config, place))
    if len(mounts) > MOST_MOUNTS:
        raise StartFailed(
            f"the sandbox's rules need {len(mounts):,} mounts here, and {MOST_MOUNTS:,} is the limit; deny directories "
            "instead of the files in them"
        )
    program = build_filter(machine, unix_sockets=config.unix_sockets)
    return Confinement(mounts, program, _SCRATCH, _font_lists())


def environment_in_sandbox(given: dict[str, str]) -> dict[str, str]:
    """Returns an environment that tells programs in a sandbox where they can write, and not to wait for a network.

    Packages that pip installs are visible to this kernel and to the programs it starts.
    """
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
    """Returns the rules of a configuration and of a kernel's surroundings, as rules about real paths."""
    written = outermost([absolute(path, place.cwd) for path in config.allow_write])
    _refuse_planted(written)
    roots = _known(map(real, written))
    _refuse_home(roots, place.homes)
    secrets = _known(map(real, (*place.secrets, *config.withheld, *_SYSTEM)))
    _refuse_secret_directory(place.cwd, secrets)
    interpreter, private = _interpreter(place.interpreter), _known(map(real, _PRIVATE))
    needed = _needed(place, interpreter, private)
    vital = [*roots, *needed, *_VITAL]
    denied, hidden = _find_denied(config, place, roots, vital)
    denied.update(path for path in interpreter if any(is_below(path, root) for root in roots))
    deny_read = _denied_to_read(config, place, roots, vital) | hidden
    allow_read = _known(
        real_allowed(path, written) for entry in config.allow_read for path in expand(absolute(entry, place.cwd), roots)
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


def _refuse_planted(written: list[str]) -> None:
    """Raises StartFailed for a directory to write whose path leads through a link that a cell may have made."""
    for path in written:
        link = first_planted_link(path)
        if link is not None:
            raise StartFailed(
                f"a sandboxed kernel may not write to {path!r}, because {link!r} is a link that another one may have "
                "made: put the directory back, or name the one that it leads to"
            )


def _find_denied(
    config: SandboxConfig, place: Surroundings, roots: list[str], vital: list[str]
) -> tuple[set[str], set[str]]:
    """Returns what stays read-only in writable directories, and what has a hidden name there."""
    wanted: set[str] = set()
    named: set[str] = set()
    names = frozenset(HIDDEN if config.deny_read == HIDDEN else ())
    for root in roots:
        protected, hidden = find_protected(root, config.depth, git_config=config.allow_git_config, hidden=names)
        wanted |= _within_reason(protected, root)
        named |= hidden
    wanted.update(absolute(path, place.cwd) for path in config.deny_write)
    denied: set[str] = set()
    for path in wanted:
        links, target = _follow(path, roots, vital)
        denied.update(links, target)
    return denied, {found for path in named for found in _follow(path, roots, vital)[1]}


def _follow(path: str, roots: list[str], vital: list[str]) -> tuple[list[str], list[str]]:
    """Returns the links of cells on the way to what is denied, and its real path, if there is anything to deny there.

    A link that a cell may have made must not deny the kernel what it needs to run.
    """
    links = [link for link in _links_on(path) if any(is_below(link, root) for root in roots)]
    found = real(path)
    if found is None or (links and any(found == one or is_below(one, found) for one in vital)):
        return links, []
    return links, [] if links and any(is_below(found, one) for one in _VITAL) else [found]


def _within_reason(protected: set[str], root: str) -> set[str]:
    """Returns what is to be protected; if that is very much, the directories of the root that hold most of it."""
    if len(protected) <= _MOST_PROTECTED:
        return protected
    by_folder: dict[str, set[str]] = {}
    for path in protected:
        folder = os.path.join(root, os.path.relpath(path, root).partition("/")[0])
        by_folder.setdefault(folder, set()).add(path)
    found = set(protected)
    for folder in sorted(by_folder, key=lambda folder: len(by_folder[folder]), reverse=True):
        if len(found) <= _MOST_PROTECTED:
            break
        found = (found - by_folder[folder]) | {folder}
    return found


def _links_on(path: str) -> list[str]:
    """Returns the real paths of the symbolic links that a path goes through."""
    links = [os.path.split(step) for step in (path, *parents(path)) if os.path.islink(step)]
    return [os.path.join(os.path.realpath(directory), name) for directory, name in links]


def _denied_to_read(config: SandboxConfig, place: Surroundings, roots: list[str], vital: list[str]) -> set[str]:
    closed: list[str] = []
    named = [path for entry in config.deny_read for path in expand(absolute(entry, place.cwd), roots, closed)]
    found = _known([*(real for path in named for real in _follow(path, roots, vital)[1]), *closed])
    if "/" in found:  # the kernel's own directories stay visible, and so does what it needs to run at all
        found += [entry.path for entry in os.scandir("/") if entry.is_dir(follow_symlinks=False)]
        found = [path for path in found if path not in ("/", "/sys", *_OWN)]
    for path in found:
        if path == "/proc" or is_below(path, "/proc"):
            reason = "a kernel has its own /proc, without other processes; remove this path"
            raise InvalidInput("sandbox: filesystem.denyRead", path, reason)
    return set(_without_own(found))


def _needed(place: Surroundings, interpreter: list[str], private: list[str]) -> list[str]:
    """Returns what a kernel cannot run without: its directory, the interpreter, its packages and kernelbox."""
    named = dict.fromkeys((os.path.dirname(place.interpreter.executable), *place.code, place.cwd))
    found = _known([*interpreter, *(real(path) for path in named if path)])
    return [path for path in _without_own(found) if path not in private]


def _interpreter(of_kernel: Interpreter) -> list[str]:
    """Returns the directories of the kernel's interpreter, the host's and kernelbox: their code also runs outside."""
    prefixes = (*of_kernel.prefixes, *own_interpreter().prefixes, _PACKAGE)
    return [path for path in _known(map(real, dict.fromkeys(prefixes))) if path not in ("/", "/usr")]


def _refuse_home(roots: list[str], homes: Iterable[str]) -> None:
    for home in _known(map(real, homes)):
        for root in roots:
            if home == root or is_below(home, root):
                raise StartFailed(
                    f"a sandboxed kernel may not write to all of {root!r}, because it contains your home directory "
                    f"{home!r}: start-up files that a cell puts there would run outside the sandbox; use a directory "
                    "in it as the working directory, or list what may be written in allowWrite"
                )


def _refuse_secret_directory(cwd: str, secrets: list[str]) -> None:
    place = real(cwd) or cwd
    for secret in secrets:
        if place == secret or is_below(place, secret):
            raise StartFailed(
                f"a sandboxed kernel cannot work in {cwd!r}, because {secret!r} belongs to kernelbox and is hidden "
                "from kernels; choose another working directory, or set KERNELBOX_HOME to another directory"
            )


def _font_lists() -> dict[str, str]:
    """Returns links to matplotlib's cached lists of fonts, which take seconds to build."""
    cache = os.path.expanduser("~/.cache/matplotlib")
    try:
        names = [name for name in os.listdir(cache) if name.startswith("fontlist-")]
    except OSError:
        return {}
    return {f"{_SCRATCH}/matplotlib/{name}": f"{cache}/{name}" for name in names}


def _is_directory(path: str) -> bool:
    """Tells whether a path is a directory; a link to a directory does not count."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _known(paths: Iterable[str | None]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if path is not None]


def _without_own(paths: list[str]) -> list[str]:
    return [path for path in paths if path not in _OWN and not path.startswith(_IN_OWN)]
