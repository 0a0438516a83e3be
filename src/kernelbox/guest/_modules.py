"""What `sys.modules` held before any code of a user's, to be put back when a cell has emptied it.

Python's own import cannot go on without some of it, and IPython imports in every cell.
"""

from __future__ import annotations

import sys as user_sys
from typing import Any

from kernelbox.guest._pristine import sys
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

# What the interpreter uses, whatever `sys.modules` is made to be; a cell can put None there.
_modules: dict[str, Any] = sys.modules
_kept = dict(_modules)  # in the template: a kernel that made the copy would touch all these modules


def restore_modules() -> None:
    """Puts back what a cell has removed, if it has removed what every import needs."""
    if _modules.get("sys") is user_sys and vars(user_sys).get("modules") is _modules:
        return
    vars(user_sys)["modules"] = _modules
    for name in [name for name, module in list(_modules.items()) if module is None]:
        del _modules[name]  # where there is None no import is tried
    for name, module in _kept.items():
        _modules.setdefault(name, module)
