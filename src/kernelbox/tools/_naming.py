"""Python names for modules, fields and classes. Any text becomes a valid name, and no two become the same."""

from __future__ import annotations

import functools
import keyword
import re
import unicodedata

from kernelbox.base._errors import InvalidInput
from kernelbox.wire._messages import SHELL_SERVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Characters of a module's name: file systems take 255 bytes.
_LONGEST = 100

# Names that annotations use beside those of the classes. A field with such a name would hide the type.
BUILT_IN_TYPES = frozenset({"str", "int", "float", "bool", "list", "dict"})
IMPORTED_TYPES = frozenset({"Any", "BaseModel", "ConfigDict", "Field", "Literal", "RootModel"})

# Plurals at the end of a list's name, each with the name of one item, where no rule finds it.
_SINGULARS: dict[str, str] = dict(
    re.findall(
        r"(\w+) (\w+)",
        "aliases alias, analyses analysis, bonuses bonus, buses bus, caches cache, children child, cookies cookie, "
        "criteria criterion, data datum, feet foot, halves half, indices index, knives knife, leaves leaf, lenses "
        "lens, lives life, matrices matrix, men man, mice mouse, movies movie, news news, people person, quizzes "
        "quiz, series series, shelves shelf, species species, statuses status, teeth tooth, vertices vertex, viruses "
        "virus, wolves wolf, women woman ",
    )
)

# Endings of singular words that end with an s, and the endings of plurals.
_NOT_PLURAL = ("ss", "us", "is", "alias", "bias", "canvas")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("oes", "o"), ("s", ""))


def module_name(name: str) -> str:
    """Returns a name for a module: a lower-case identifier that is not a keyword.

    It never begins with an underscore: such names are used by Python and by us (`__path__`, `_server`).
    """
    words = re.sub(r"\W+", "_", name, flags=re.ASCII).lower()[:_LONGEST]
    if not words or words[0] == "_":
        words = f"tool{words}"
    elif words[0].isdigit():
        words = f"tool_{words}"
    return f"{words}_" if keyword.iskeyword(words) else words


def module_names(names: list[str]) -> dict[str, str]:
    """Returns a module's name for each name; where several would get the same one, the others get a number.

    A name that is a module's name already keeps it. The order of the list does not matter: a server may change it.
    """
    ordered = sorted(set(names), key=lambda name: (module_name(name) != name, name))
    taken = _Numbered()
    return {name: taken.add(module_name(name), separator="_", first=2) for name in ordered}


def field_names(names: Iterable[str], classes: frozenset[str]) -> dict[str, str]:
    """Returns a field's name for each name of a property, different from each other and from those of the classes.

    A name that can be a field's keeps it.
    """
    wanted = {name: _field_name(name, classes) for name in names}
    taken = _Numbered(*(name for name, field in wanted.items() if name == field))
    return {name: name if name == field else taken.add(field, separator="_") for name, field in wanted.items()}


def class_name(name: str) -> str:
    """Returns a name for the class of a property's values: its words, each with a capital letter."""
    words = _identifier(name).split("_")
    return unicodedata.normalize("NFKC", "".join(word[:1].upper() + word[1:] for word in words))


def item_name(name: str) -> str:
    """Returns a name for the class of a list's items: `Entity` for `Entities`, or `GridItem` for `Grid`."""
    if re.search(r"[A-Z]{2}s$", name):
        return name[:-1]  # IDs
    found = re.search(r"[A-Z]?[a-z]+$", name)
    last = "" if found is None else found[0]
    one = _singular(last.lower())
    if not one:
        return f"{name}Item"
    return name[: len(name) - len(last)] + (one.capitalize() if last[0].isupper() else one)


class ClassNames:
    """The names of the classes of one module."""

    def __init__(self, *reserved: str) -> None:
        self._taken = _Numbered(*reserved, *IMPORTED_TYPES, "None", "True", "False")

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def add(self, wanted: str) -> str:
        """Returns a new name: the one that is wanted, or one with a number."""
        cannot = wanted in IMPORTED_TYPES or keyword.iskeyword(wanted)
        return self._taken.add(f"{wanted}Model" if cannot else wanted)


def check_server_name(name: object) -> str:
    """Returns a server's name; raises InvalidInput for one that cannot be used."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InvalidInput("the name of a server", name, f"use a word of 1 to {_LONGEST} characters")
    if name == SHELL_SERVER or module_name(name) == SHELL_SERVER:
        raise InvalidInput("the name of a server", name, "shell commands are asked for under this name; use another")
    return name


class _Numbered:
    """A set of names; a name that is in it already gets a number."""

    def __init__(self, *names: str) -> None:
        self._names = set(names)
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, wanted: str, *, separator: str = "", first: int = 1) -> str:
        name = wanted
        while name in self._names:
            number = self._numbers.get(wanted, first)
            self._numbers[wanted] = number + 1
            name = f"{wanted}{separator}{number}"
        self._names.add(name)
        return name


def _field_name(name: str, classes: frozenset[str]) -> str:
    field = _identifier(name)
    taken = keyword.iskeyword(field) or field in BUILT_IN_TYPES or field in IMPORTED_TYPES or field in classes
    return f"{field}_" if taken or field in _names_of_models() else field


@functools.cache
def _names_of_models() -> frozenset[str]:
    """Returns the names that every model of pydantic's has, such as `copy`."""
    from pydantic import BaseModel

    return frozenset(dir(BaseModel))


def _identifier(text: str) -> str:
    """Returns an identifier, in the form that Python's parser gives it; it may be a keyword."""
    text = unicodedata.normalize("NFKC", text)
    text = "".join(char if f"a{char}".isidentifier() else "_" for char in text)
    if not text or text[0] == "_":
        return f"field{text or '_'}"  # a field that begins with an underscore is private to pydantic
    return text if text.isidentifier() else f"field_{text}"


def _singular(word: str) -> str:
    """Returns the singular of a plural, "" for other words."""
    if word in _SINGULARS or len(word) < 3 or word.endswith(_NOT_PLURAL):
        return _SINGULARS.get(word, "")
    if len(word) == 4 and word.endswith("ies"):
        return word[:-1]  # ties
    for ending, instead in _ENDINGS:
        if word.endswith(ending):
            return word[: -len(ending)] + instead
    return ""
