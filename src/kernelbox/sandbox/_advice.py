"""Advice for the user when the system does not allow a sandbox."""

from __future__ import annotations

import errno
import os

from kernelbox.wire._confinement import failed_step
from kernelbox.wire._layout import UNGUARDED

_SETTINGS = "/proc/sys"

_IN_CONTAINER = (
    "this looks like a container whose profile forbids namespaces, or a chroot, which cannot create them: start the "
    "container with a profile that allows them (docker run --security-opt seccomp=unconfined --security-opt "
    "systempaths=unconfined --cap-add SYS_ADMIN), or let it be the sandbox and leave this one out"
)
_NONE_ALLOWED = (
    "the system allows no user namespaces: have an administrator raise them, with `sysctl "
    "user.max_user_namespaces=10000`"
)
_SWITCHED_OFF = (
    "the system forbids user namespaces to its users: have an administrator allow them, with `sysctl "
    "kernel.unprivileged_userns_clone=1`"
)
_APPARMOR = (
    "AppArmor restricts user namespaces here, as in Ubuntu 23.10 and newer: have an administrator allow them, with "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or with a profile for this interpreter that has `userns,`"
)
_COVERED_PROC = (
    "parts of /proc are masked here, as in most containers, and the system then refuses to mount another /proc: start "
    "the container without the masks (docker run --security-opt systempaths=unconfined, podman run --security-opt "
    "unmask=ALL)"
)
_NO_FIRST = (
    "the first process of a sandbox is the program `cat`, which must be at /bin/cat, /usr/bin/cat or, on NixOS, "
    "/run/current-system/sw/bin/cat: install coreutils, or have an administrator link it there, with "
    '`ln -s "$(command -v cat)" /bin/cat`'
)
_OLD = (
    "the sandbox needs Linux 5.12 or newer, built with user namespaces and seccomp filters: use a newer system, or "
    "leave the sandbox out"
)
_BROKEN_SRT = (
    "srt ended before the kernel's template ran: try `srt -- true` in the same directory, and if that fails too "
    "install it anew (npm install -g @anthropic-ai/sandbox-runtime); or leave sandbox_level out"
)
_BAD_SETTINGS = "srt refuses the configuration: change what it names"
_NO_GUARD = (
    "require_shell_escape needs Linux 5.19 or newer with seccomp and Landlock, and Landlock must be an active security "
    "module (cat /sys/kernel/security/lsm): use a newer system, add `lsm=landlock,…` to the kernel's command line, "
    "start the container with a profile that allows landlock_create_ruleset(2), or do without require_shell_escape"
)
_UNKNOWN = "`kernelbox doctor` tries again; docs/sandbox.md says what each step needs"


def advise(reason: str) -> str:
    """Returns what to do when a kernel could not be confined or guarded, by the reason it gave."""
    if UNGUARDED in reason:
        return _NO_GUARD
    step, number = failed_step(reason) or ("", 0)
    if step == "start cat":
        return _NO_FIRST
    if number == errno.ENOSYS or (step.startswith("prctl") and number == errno.EINVAL):
        return _OLD
    if step == "unshare":
        return _advise_about_namespaces(number)
    if step.startswith("mount proc"):
        return _COVERED_PROC
    if number in (errno.EPERM, errno.EACCES):
        return _APPARMOR if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1" else _IN_CONTAINER
    return _UNKNOWN


def advise_about_srt(said: str) -> str:
    """Returns what to do when srt ended at once, by what it and bubblewrap printed."""
    if "does not hold a valid config" in said:
        return _BAD_SETTINGS
    if "namespace" in said or "uid map" in said or "Operation not permitted" in said or "Permission denied" in said:
        return _advise_about_namespaces(errno.ENOSPC if "No space left" in said else errno.EPERM)
    return _BROKEN_SRT


def _advise_about_namespaces(number: int) -> str:
    if number == errno.ENOSPC or _setting("user/max_user_namespaces") == "0":
        return _NONE_ALLOWED
    if number == errno.EINVAL:
        return _OLD
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return _SWITCHED_OFF
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return _APPARMOR
    return _IN_CONTAINER if number == errno.EPERM else _UNKNOWN


def _setting(name: str) -> str:
    try:
        with open(os.path.join(_SETTINGS, name)) as file:
            return file.read().strip()
    except OSError:
        return ""
