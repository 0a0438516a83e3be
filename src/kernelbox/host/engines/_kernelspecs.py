"""Jupyter's kernelspecs: the installed kernel types, their pictures, and the commands that start them."""

from __future__ import annotations

import os
import re
import string
import sys
from dataclasses import dataclass

from kernelbox.base._errors import InvalidInput
from kernelbox.base._extras import missing, require

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from jupyter_client.kernelspec import KernelSpec

# Variables that a Jupyter server sets for its own kernels. With them, a kernel would end together with that server.
_NOT_FOR_US = ("JPY_PARENT_PID", "JPY_INTERRUPT_EVENT", "IPY_INTERRUPT_EVENT", "JPY_SESSION_NAME")

_LOGO = re.compile(r"logo-[\w-]+\.(png|svg|jpg|gif)", re.ASCII)

# The most bytes of a picture. Jupyter's own have a few thousand.
_LARGEST_LOGO = 1024 * 1024

# The module that the kernelspec of `kernelbox jupyter install` starts.
_OUR_MODULE = "kernelbox.server.jupyter"


@dataclass(frozen=True, slots=True)
class JupyterSpec:
    """A kernel type, from its kernel.json."""

    name: str
    language: str
    interrupt_mode: Literal["signal", "message"]
    transport: Literal["ipc", "tcp"]
    resource_dir: str
    argv: tuple[str, ...]
    env: dict[str, str]

    def command(self, connection_file: str) -> list[str]:
        """Returns the command that starts a kernel, the same as jupyter_client's."""
        argv = list(self.argv)
        version = sys.version_info
        if argv[0] in ("python", f"python{version[0]}", f"python{version[0]}.{version[1]}"):
            argv[0] = sys.executable
        values = {"connection_file": connection_file, "prefix": sys.prefix, "resource_dir": self.resource_dir}
        return [re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), part) for part in argv]

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """Returns the environment of a kernel: the caller's, with the additions of the kernelspec."""
        added = {name: string.Template(value).safe_substitute(env) for name, value in self.env.items()}
        return {name: value for name, value in env.items() if name not in _NOT_FOR_US} | added


@dataclass(frozen=True, slots=True)
class InstalledSpec:
    """A kernelspec that can be used as a kernel type: its kernel.json, and the paths of its pictures by name."""

    spec: dict[str, Any]
    logos: dict[str, str]


def installed_kernelspecs() -> dict[str, InstalledSpec]:
    """Returns the usable kernelspecs by name."""
    if missing("jupyter"):
        return {}
    from jupyter_client.kernelspec import KernelSpecManager

    manager, found = KernelSpecManager(), {}
    for name in manager.find_kernel_specs():
        try:
            spec = manager.get_kernel_spec(name)
            _read(name, spec)
        except Exception:  # noqa: BLE001  # a broken kernelspec is left out
            continue
        if _OUR_MODULE not in spec.argv:  # it would only start a kernel of kernelbox in a roundabout way
            found[name] = InstalledSpec(spec.to_dict(), _find_logos(spec.resource_dir))
    return found


def _find_logos(directory: str) -> dict[str, str]:
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry.path for entry in entries if _LOGO.fullmatch(entry.name) and entry.is_file()}
    except OSError:
        return {}


def find_spec(kernel_type: str) -> JupyterSpec:
    """Returns the spec of a kernel type; raises InvalidInput, which lists the usable types, and MissingExtra."""
    require("jupyter")
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        spec = KernelSpecManager().get_kernel_spec(kernel_type)
    except NoSuchKernel as exc:
        known = sorted({"python3", *installed_kernelspecs()})
        raise InvalidInput("the kernel type", kernel_type, f"use one of {', '.join(known)}") from exc
    except Exception as exc:  # jupyter_client lets any error of the file through
        raise InvalidInput("the kernel type", kernel_type, f"its kernel.json cannot be used ({exc})") from exc
    return _read(kernel_type, spec)


def _read(kernel_type: str, spec: KernelSpec) -> JupyterSpec:
    provisioner = spec.metadata.get("kernel_provisioner", {}).get("provisioner_name", "local-provisioner")
    if provisioner != "local-provisioner":
        reason = f"it needs the provisioner {provisioner!r}, but kernelbox starts processes itself"
        raise InvalidInput("the kernel type", kernel_type, reason)
    if not spec.argv:
        raise InvalidInput("the kernel type", kernel_type, "its kernel.json names no command")
    return JupyterSpec(
        name=kernel_type,
        language=spec.language.lower(),
        interrupt_mode="message" if spec.interrupt_mode == "message" else "signal",
        transport="tcp" if spec.metadata.get("kernelbox", {}).get("transport") == "tcp" else "ipc",
        resource_dir=spec.resource_dir,
        argv=tuple(spec.argv),
        env={str(name): str(value) for name, value in spec.env.items()},
    )


def read_logo(kernel_type: str, file: str) -> bytes | None:
    """Returns a picture of a kernelspec; None if it has none of that name."""
    found = installed_kernelspecs().get(kernel_type)
    if found is None or file not in found.logos:
        return None
    with open(found.logos[file], "rb") as picture:
        return picture.read(_LARGEST_LOGO)


def language_of(kernel_type: str) -> str:
    """Returns the language of a kernel type; raises InvalidInput if its kernelspec is gone."""
    return find_spec(kernel_type).language
