"""What our kernels tell a front end about themselves: `kernel_info_reply`, and the kernelspec."""

from __future__ import annotations

import sys
from typing import Any

from kernelbox import __version__
from kernelbox.server.jupyter._front_end_message import PROTOCOL_VERSION

# What our kernels are called among the kernelspecs, and in a launcher.
SPEC_NAME = "python3"
DISPLAY_NAME = "Python 3 (kernelbox)"

# Its picture there: a box, and a prompt in it.
LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect x="6" y="6" width="52" height="52" rx="9" '
    'fill="#23395b"/><path d="M18 22l11 10-11 10" fill="none" stroke="#fff" stroke-width="5" stroke-linecap="round" '
    'stroke-linejoin="round"/><path d="M34 44h13" stroke="#f2c14e" stroke-width="5" stroke-linecap="round"/></svg>'
)

_PYTHON = ".".join(map(str, sys.version_info[:3]))


# What `kernel_info_reply` says of debuggers.
NO_DEBUGGER: dict[str, Any] = {"debugger": False, "supported_features": []}

_PYTHON_INFO: dict[str, Any] = {
    "name": "python",
    "version": _PYTHON,
    "mimetype": "text/x-python",
    "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
    "pygments_lexer": "ipython3",
    "nbconvert_exporter": "python",
    "file_extension": ".py",
}


def kernel_info(language: str = "python") -> dict[str, Any]:
    """Returns the content of `kernel_info_reply`. Of another language only the name is known."""
    other = {"name": language, "version": "", "mimetype": "text/plain", "file_extension": ".txt"}
    return {
        "status": "ok",
        "protocol_version": PROTOCOL_VERSION,
        "implementation": "kernelbox",
        "implementation_version": __version__,
        "language_info": _PYTHON_INFO if language == "python" else other,
        "banner": f"kernelbox {__version__}, {f'Python {_PYTHON}' if language == 'python' else language}",
        "help_links": [],
        **NO_DEBUGGER,
    }


def debug_refusal(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of `debug_reply`: there is no debugger of this kind, as `kernel_info_reply` says."""
    command = request.get("command")
    return {
        "type": "response",
        "request_seq": request.get("seq", 0),
        "success": False,
        "command": command if isinstance(command, str) else "",
        "message": "kernelbox has no debugger for front ends; breakpoint() in a cell starts one that asks by input()",
        "body": {},
    }
