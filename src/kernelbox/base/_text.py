"""Untrusted text: what can be a name, what a version says, and how it is shown without affecting a terminal."""

from __future__ import annotations

MAX_NAME = 1000

# Invisible letters and symbols that Unicode calls printable: fillers and the empty Braille pattern.
_INVISIBLE = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def is_name(text: object) -> bool:
    """Tells whether a text can be the name of a kernel: it must fit on one line."""
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_NAME:
        return False
    return text.isprintable() or all(map(_is_in_a_line, text))


def escape(text: str, *, keep: str = "") -> str:
    r"""Returns text with its invisible characters escaped, except those in `keep`.

    These are control characters, which move the cursor and recolour the terminal; characters that reverse the direction
    of writing (`\u202e`) or have no width; and surrogates, which cannot be written at all.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character in keep or character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def spell_out(text: str) -> str:
    """Returns text for a person to decide on: characters that cover, reverse or imitate others are escaped too.

    `escape` keeps these, because names may be in any script.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _stands_alone(char) else _escaped(char) for char in text)


def _stands_alone(char: str) -> bool:
    if char.isascii():
        return char.isprintable()
    from unicodedata import bidirectional, category

    return (
        char.isprintable()
        and char not in _INVISIBLE
        and category(char) not in ("Mn", "Me")  # drawn over the character before, or not at all
        and bidirectional(char) not in ("R", "AL", "AN")  # a terminal may reverse its neighbours
    )


def _escaped(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if not char.isascii() else repr(char)[1:-1]


def version_numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers that a version begins with: (9, 3) for 9.3rc1."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def _is_in_a_line(character: str) -> bool:
    """False for control characters, line and paragraph separators, and surrogates."""
    code = ord(character)
    return code >= 32 and not 0x7F <= code <= 0x9F and code not in (0x2028, 0x2029) and not 0xD800 <= code <= 0xDFFF
