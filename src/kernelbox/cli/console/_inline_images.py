"""Pictures in the terminal itself, where it can show them: by the protocols of kitty and iTerm2, or as sixels."""

from __future__ import annotations

import base64
import io
import os
import re
import select
import sys
import termios
import tty

from kernelbox.base._environment import host_variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from PIL.Image import Image

    Protocol = Literal["kitty", "iterm2", "sixel"]

# Bytes of base64 in one piece: https://sw.kovidgoyal.net/kitty/graphics-protocol/
_KITTY_PIECE = 4096

# Seconds that a terminal has to say what it is. Every terminal answers at once; a person would notice more.
_PATIENCE = 0.3

# Pixels of the widest sixel picture, which a terminal of 80 columns can show.
_WIDEST = 800

_COLORS = 256

# A sixel that is repeated, which is written once with a count.
_RUN = re.compile(r"(.)\1{3,}")


def find_protocol() -> Protocol | None:
    """Returns how the terminal shows pictures, None if it does not."""
    term, program = host_variable("TERM") or "", host_variable("TERM_PROGRAM") or ""
    if term.startswith(("screen", "tmux", "dumb")):
        return None  # they would pass nothing on
    if term in ("xterm-kitty", "xterm-ghostty") or host_variable("KITTY_WINDOW_ID"):
        return "kitty"
    if program in ("iTerm.app", "WezTerm") or host_variable("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return "sixel" if "4" in _ask_attributes() else None


def encode(protocol: Protocol, mime: str, data: str) -> str | None:
    """Returns what shows a picture, which is base64; None if it cannot be drawn."""
    if mime not in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        return None
    raw = base64.b64decode(data)
    try:
        if protocol == "iterm2":
            return f"\x1b]1337;File=inline=1;size={len(raw)}:{base64.b64encode(raw).decode()}\x07"
        if protocol == "kitty":
            return _encode_kitty(raw if mime == "image/png" else _to_png(raw))
        return _encode_sixel(_open(raw))
    except (OSError, ValueError):  # not a picture after all
        return None


def _encode_kitty(png: bytes) -> str:
    text = base64.b64encode(png).decode()
    pieces = [text[at : at + _KITTY_PIECE] for at in range(0, len(text), _KITTY_PIECE)]
    shown = []
    for number, piece in enumerate(pieces):
        control = f"{'a=T,f=100,' if number == 0 else ''}m={int(number < len(pieces) - 1)}"
        shown.append(f"\x1b_G{control};{piece}\x1b\\")
    return "".join(shown)


def _encode_sixel(picture: Image) -> str:
    """Draws a picture in bands of six lines, one colour of a band after the other (DEC STD 070)."""
    if picture.width > _WIDEST:
        picture = picture.resize((_WIDEST, max(1, picture.height * _WIDEST // picture.width)))
    picture = picture.convert("RGB").quantize(_COLORS)
    palette, pixels = picture.getpalette() or [], picture.tobytes()
    width, height = picture.size
    out = ["\x1bPq"]
    for index in range(len(palette) // 3):
        red, green, blue = (round(value * 100 / 255) for value in palette[3 * index : 3 * index + 3])
        out.append(f"#{index};2;{red};{green};{blue}")
    for top in range(0, height, 6):
        rows = [pixels[y * width : (y + 1) * width] for y in range(top, min(top + 6, height))]
        for color in sorted(set().union(*rows)):
            line = "".join(
                chr(63 + sum(1 << bit for bit, row in enumerate(rows) if row[x] == color)) for x in range(width)
            )
            out.append(f"#{color}{_RUN.sub(lambda run: f'!{len(run[0])}{run[1]}', line)}$")
        out.append("-")
    return "".join(out) + "\x1b\\"


def _open(raw: bytes) -> Image:
    from PIL import Image

    return Image.open(io.BytesIO(raw))


def _to_png(raw: bytes) -> bytes:
    made = io.BytesIO()
    _open(raw).save(made, "PNG")
    return made.getvalue()


def _ask_attributes() -> list[str]:
    """Asks the terminal what it can do (DA1); its answer is `ESC [ ? 62 ; 4 ; … c`, where 4 stands for sixels."""
    fd = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(fd)
        tty.setcbreak(fd)
    except termios.error:
        return []
    answer = b""
    try:
        os.write(sys.stdout.fileno(), b"\x1b[c")
        while not answer.endswith(b"c") and select.select([fd], [], [], _PATIENCE)[0]:
            answer += os.read(fd, 64)
    except OSError:
        return []
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
    found = re.search(rb"\x1b\[\?([\d;]*)c", answer)
    return found[1].decode().split(";")[1:] if found else []
