"""What the process of a walled kernel gives up, before any code of a user's, so that nothing undoes its walls."""

from __future__ import annotations

import resource

from kernelbox.guest._system_calls import drop_capabilities, filter_system_calls

# Below a page, so that no core is written to a file; and the one value with which none is piped to a program (core(5)).
_NO_CORE = (1, 1)


def arm(program: bytes) -> None:
    """Gives up core files, all capabilities, and the system calls that a program for seccomp(2) refuses."""
    resource.setrlimit(resource.RLIMIT_CORE, _NO_CORE)
    drop_capabilities()
    filter_system_calls(program)
