"""Environments: which of our own variables kernels, templates and servers get, and which a file may set."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def wants_color() -> bool:
    """Tells whether a terminal's user wants colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def kernel_environment() -> dict[str, str]:
    """Returns the caller's environment, as kernels of the synchronous API get it."""
    return _with_own_programs(dict(os.environ))


# What programs need to run at all, and no secrets.
_HARMLESS_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "TZ", "VIRTUAL_ENV")
_LIBRARY_NAMES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def scrubbed_environment(kernel_env: dict[str, str]) -> dict[str, str]:
    """Returns the environment of an executor's kernel: `kernel_env` and a short list of harmless variables."""
    harmless = {
        name: value
        for name, value in os.environ.items()
        if name in (*_HARMLESS_NAMES, *_LIBRARY_NAMES) or name.startswith("LC_")
    }
    return {**_with_own_programs(harmless), **kernel_env}


def _with_own_programs(env: dict[str, str]) -> dict[str, str]:
    """Puts the directory of the interpreter first on the PATH if that is in a virtual environment not activated.

    So `!python` and `!pip` in a cell are the ones of the kernel. Where the PATH has the directory, its order is kept.
    """
    programs, path = os.path.dirname(sys.executable), env.get("PATH", os.defpath)
    if sys.prefix == sys.base_prefix or not programs or programs in path.split(os.pathsep):
        return env
    return {**env, "PATH": os.pathsep.join((programs, path))}


# What a variable of a server is called that is for kernels, as ipybox has it: KERNEL_ENV_X becomes X.
_KERNEL_PREFIX = "KERNEL_ENV_"


# What a file has set, for kernels and for the parameters of tool servers. It is not in os.environ: libraries here, and
# programs that are started here, would take what to load from it (OPENSSL_CONF), or whom to trust (SSL_CERT_FILE).
_from_file: dict[str, str] = {}


def variables_for_kernels() -> dict[str, str]:
    """Returns the caller's variables that are for kernels, by the names that they have there."""
    known = {**_from_file, **os.environ}
    names = [name for name in known if name.startswith(_KERNEL_PREFIX) and name != _KERNEL_PREFIX]
    return {name.removeprefix(_KERNEL_PREFIX): known[name] for name in names}


def environment_of_server(kernel_env: Mapping[str, str]) -> dict[str, str]:
    """Returns the caller's environment for a server that passes these variables, and no others, on to kernels."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(_KERNEL_PREFIX)}
    return {**others, **{f"{_KERNEL_PREFIX}{name}": value for name, value in kernel_env.items()}}


# Variables that say which programs and code are run, and how kernelbox works: a file in a folder that another user
# may have made, and that cells can write, sets them neither here nor in kernels.
_NAMES_NOT_FROM_FILES = frozenset({"PATH", "HOME", "SHELL", "ENV", "IFS", "NODE_OPTIONS", "VIRTUAL_ENV", "IPYTHONDIR"})
_PREFIXES_NOT_FROM_FILES = ("KERNELBOX_", "PYTHON", "LD_", "DYLD_", "BASH_", "PIP_", "UV_", "GIT_", "XDG_")


def add_variables(pairs: Mapping[str, str]) -> list[str]:
    """Adds variables of a file that the caller has not set; returns the names of those that a file may not set."""
    refused = [name for name in pairs if _decides_what_runs(name.removeprefix(_KERNEL_PREFIX))]
    _from_file.update((name, value) for name, value in pairs.items() if name not in refused and "\0" not in value)
    return refused


def _decides_what_runs(name: str) -> bool:
    return name in _NAMES_NOT_FROM_FILES or name.startswith(_PREFIXES_NOT_FROM_FILES)


def host_variable(name: str) -> str | None:
    """Returns a variable of the host's environment, such as a token."""
    return os.environ.get(name)


def tool_variable(name: str) -> str | None:
    """Returns a variable that the parameters of a tool server name: the host's, or one of a file."""
    return os.environ.get(name, _from_file.get(name))


# What a template is started with. Its children get their own environment, but can read the one it began with
# (/proc/self/environ), so nothing secret may be in it; and what libraries read while they are imported belongs
# to its identity.
_TEMPLATE_PREFIXES = (
    "PYTHON",
    "LC_",
    "LD_",
    "DYLD_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "NUMEXPR_",
    "MPL",
    "CUDA_",
)


def template_environment(env: dict[str, str]) -> dict[str, str]:
    """Returns the part of a kernel's environment that its template must share."""
    return {
        name: value for name, value in env.items() if name in _HARMLESS_NAMES or name.startswith(_TEMPLATE_PREFIXES)
    }
