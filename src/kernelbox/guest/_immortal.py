"""Code that is no longer counted, so that kernels do not copy the pages that it lies on.

Whoever uses an object adds to its count of references, which is in the object. So a kernel would copy a page for each
function that it calls, although it changes nothing there. Since Python 3.12 an object can be immortal: its count stays
as it is (PEP 683). The interpreter's own constants are; the template makes its code so, too.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import sysconfig
import types

# The lower half of a count that neither grows nor falls (Include/object.h).
_IMMORTAL = 0xFFFFFFFF

# All that a process can address, as numbers of four bytes. Each count is looked up in it, which takes a fraction of the
# time that an object of ctypes for each would.
_ADDRESSES = 1 << 56

# What code is made of. None of it holds a file, or anything else that must be given back.
_KINDS = frozenset(
    {
        *(types.FunctionType, types.BuiltinFunctionType, types.CellType, types.ModuleType, tuple, frozenset),
        *(property, classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType),
        *(types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType),
    }
)


def make_immortal() -> None:
    """Makes the code in this process immortal, for its forks, if this Python has such objects."""
    if not _has_counts():
        return
    counts = memoryview((ctypes.c_uint32 * (_ADDRESSES // 4)).from_address(0)).cast("B").cast("I")
    if not _are_known(counts):
        return
    codes = []
    for obj in gc.get_objects():
        kind = type(obj)
        if kind in _KINDS or issubclass(kind, type):  # not isinstance, which asks the object: it may run code
            counts[id(obj) >> 2] = _IMMORTAL
            if kind is types.FunctionType:
                codes.append(obj.__code__)
    while codes:
        code = codes.pop()
        for part in (code, code.co_names, code.co_consts, *code.co_consts):
            counts[id(part) >> 2] = _IMMORTAL
        codes += [part for part in code.co_consts if type(part) is types.CodeType]


def _has_counts() -> bool:
    """Tells whether an object begins with a count. Builds for debugging, and those without a lock, differ."""
    if sys.implementation.name != "cpython" or sys.hexversion < 0x030C0000 or sys.maxsize < 2**32:
        return False
    unusual = hasattr(sys, "gettotalrefcount") or sysconfig.get_config_var("Py_GIL_DISABLED")
    return sys.byteorder == "little" and not unusual


def _are_known(counts: memoryview) -> bool:
    """Tells whether Python takes an object with such a count for immortal."""
    probe = object()
    counts[id(probe) >> 2] = _IMMORTAL
    several = [probe] * 3
    return sys.getrefcount(probe) == sys.getrefcount(several.pop()) >= _IMMORTAL
