"""Environments: which of the host's variables kernels, templates and servers get, and which a file may set."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kernelbox.base._interpreter import Interpreter


def wants_color() -> bool:
    """Tells whether a terminal's user wants colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def kernel_environment(*, sandboxed: bool) -> dict[str, str]:
    """Returns the environment of a kernel that was given none: the caller's own, or a scrubbed one in a sandbox."""
    return scrubbed_environment({}) if sandboxed else _with_own_programs(dict(os.environ))


# What programs need to run at all, and no secrets.
_HARMLESS_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "TZ", "VIRTUAL_ENV")
_LIBRARY_NAMES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def scrubbed_environment(kernel_env: dict[str, str]) -> dict[str, str]:
    """Returns an environment without secrets: `kernel_env` and a short list of harmless variables.

    Kernels of executors, of the HTTP and MCP servers and of sandboxes get it.
    """
    return {**_with_own_programs(harmless_environment()), **kernel_env}


def tool_server_environment(env: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a tool server: `env` and the same variables; `python` is the one of the caller."""
    return {**harmless_environment(), **env}


def harmless_environment() -> dict[str, str]:
    """Returns what programs need of the host's environment to run at all."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in (*_HARMLESS_NAMES, *_LIBRARY_NAMES) or name.startswith("LC_")
    }


def _with_own_programs(env: dict[str, str]) -> dict[str, str]:
    """Puts the interpreter's directory first on the PATH if it belongs to a virtual environment that is not activated.

    So `!python` and `!pip` in a cell are those of the kernel. A PATH that has the directory is not changed.
    """
    programs, path = os.path.dirname(sys.executable), env.get("PATH", os.defpath)
    if sys.prefix == sys.base_prefix or not programs or programs in path.split(os.pathsep):
        return env
    return {**env, "PATH": os.pathsep.join((programs, path))}


# What names the environment that a shell has activated.
_ACTIVATED = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")


def environment_in(interpreter: Interpreter, env: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a kernel of another interpreter, whose programs come first on PATH.

    So `!python` and `!pip` in a cell are those of the kernel. An environment without PATH stays as it is.
    """
    if interpreter.is_own or "PATH" not in env:
        return env
    own, programs = os.path.dirname(sys.executable), os.path.dirname(interpreter.executable)
    rest = [path for path in env["PATH"].split(os.pathsep) if path not in (own, programs)]
    kept = {name: value for name, value in env.items() if name not in _ACTIVATED}
    activated = {"VIRTUAL_ENV": interpreter.is_virtual, "CONDA_PREFIX": interpreter.is_conda}
    named = {name: interpreter.prefix for name, is_one in activated.items() if is_one}
    return {**kept, **named, "PATH": os.pathsep.join((programs, *rest))}


# The prefix of a server's variables for its kernels, as in ipybox: KERNEL_ENV_X becomes X.
_KERNEL_PREFIX = "KERNEL_ENV_"

# Variables that a file has set, for kernels and for the parameters of tool servers. They are not in os.environ, because
# they could tell libraries and child programs of the host what to load (OPENSSL_CONF) or trust (SSL_CERT_FILE).
_from_file: dict[str, str] = {}


def variables_for_kernels() -> dict[str, str]:
    """Returns the caller's variables for kernels, under their names in the kernels."""
    known = {**_from_file, **os.environ}
    names = [name for name in known if name.startswith(_KERNEL_PREFIX) and name != _KERNEL_PREFIX]
    return {name.removeprefix(_KERNEL_PREFIX): known[name] for name in names}


def gateway_environment(kernel_env: Mapping[str, str]) -> dict[str, str]:
    """Returns the caller's environment for a server that passes only these variables on to kernels."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(_KERNEL_PREFIX)}
    return {**others, **{f"{_KERNEL_PREFIX}{name}": value for name, value in kernel_env.items()}}


# The last words of the variables that a file may set: secrets, and whose they are. Another user may have made the
# folder of the file, and cells can write to it. Any other variable may decide what some program loads or runs, and no
# list of those is complete (OPENSSL_CONF, PERL5LIB, MAKEFLAGS, MPLBACKEND).
_WORDS_FROM_FILES = frozenset(
    {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "ID", "USER", "USERNAME", "EMAIL", "ORG", "ACCOUNT", "REGION"}
)


def add_variables(pairs: Mapping[str, str], allowed: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Adds the variables of a file: those that hold secrets, and those `allowed` by name. Those of the caller win.

    Returns the names that were set, and the names that a file may not set.
    """
    refused = [name for name in pairs if not _may_come_from_file(name, allowed)]
    added = {name: value for name, value in pairs.items() if name not in (*refused, *os.environ) and "\0" not in value}
    _from_file.update(added)
    return list(added), refused


def _may_come_from_file(name: str, allowed: Collection[str]) -> bool:
    bare = name.removeprefix(_KERNEL_PREFIX)
    if name in allowed or bare in allowed:
        return True
    is_secret = bare.rpartition("_")[2] in _WORDS_FROM_FILES
    return is_secret and bare not in _HARMLESS_NAMES and not bare.startswith("KERNELBOX_")


def host_variable(name: str) -> str | None:
    """Returns a variable of the host's environment, such as a token."""
    return os.environ.get(name)


def tool_variable(name: str) -> str | None:
    """Returns a variable that the parameters of a tool server name: the host's own, or one from a file."""
    return os.environ.get(name, _from_file.get(name))


# The variables that a template starts with. Its children get their own environment but can read this one
# (/proc/self/environ), so it must not contain secrets. It has what libraries read while they are imported, and kernels
# that differ in it have different templates.
_TEMPLATE_PREFIXES = ("PYTHON", "LC_", "LD_", "DYLD_", "OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "MPL", "CUDA_")


def template_environment(env: dict[str, str]) -> dict[str, str]:
    """Returns the part of a kernel's environment that its template must share."""
    return {
        name: value for name, value in env.items() if name in _HARMLESS_NAMES or name.startswith(_TEMPLATE_PREFIXES)
    }
