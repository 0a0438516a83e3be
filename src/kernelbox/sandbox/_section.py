"""One object of a sandbox's configuration file; unknown keys are rejected."""

from __future__ import annotations

from collections.abc import Mapping

from kernelbox.base._errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Section:
    """One object of the file. Keys that were not taken before `finish` are unknown."""

    def __init__(self, name: str, settings: object, what: str) -> None:
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise InvalidInput.saying(f"{what}: {name or 'the configuration'} must be an object with keys and values")
        self.name, self.what = name, what
        self._settings = dict(settings)
        self._known: set[str] = set()

    def section(self, key: str) -> Section:
        return Section(key, self.take(key, {}), self.what)

    def part(self, key: str, value: object) -> Section:
        """Returns the value of a key as a section that is named by its whole path."""
        return Section(self._path(key), value, self.what)

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self._settings

    def take(self, key: str, default: object = None) -> Any:
        self._known.add(key)
        return self._settings.pop(key, default)

    def refuse(self, key: str, reason: str) -> None:
        """Refuses a key unless it is absent, null or false."""
        value = self.take(key)
        if value not in (None, False):
            raise InvalidInput.saying(f"{self.what}: {self._path(key)} cannot be honoured: {reason}")

    def texts(self, key: str) -> list[str]:
        def are_texts(value: object) -> bool:
            return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)

        return list(self._checked(key, [], are_texts, "use a list of strings"))

    def flag(self, key: str) -> bool:
        return bool(self._checked(key, False, lambda value: isinstance(value, bool), "use true or false"))

    def number(self, key: str, default: int, least: int, most: int) -> int:
        def fits(value: object) -> bool:
            return type(value) is int and least <= value <= most

        return int(self._checked(key, default, fits, f"use a whole number from {least} to {most}"))

    def finish(self) -> None:
        if self._settings:
            key = min(self._settings)
            raise InvalidInput.saying(f"{self.what}: {self._path(key)} is unknown; {self._advice(key)}")

    def _advice(self, key: str) -> str:
        from difflib import get_close_matches  # only where there is a mistake

        if found := get_close_matches(key, sorted(self._known), 1):
            return f"did you mean {self._path(found[0])}?"
        return "docs/sandbox.md lists the keys"

    def _checked(self, key: str, default: object, is_sound: Callable[[object], bool], allowed: str) -> Any:
        value = self.take(key, default)
        if not is_sound(value):
            raise InvalidInput(f"{self.what}: {self._path(key)}", value, allowed)
        return value

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key
