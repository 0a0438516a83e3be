"""A directory that stays open between uses. Opening it through the home would be most of the cost of a short call.

It is opened again when its path leads elsewhere or nowhere, or when it or its home has become accessible to others.
"""

from __future__ import annotations

import os

from kernelbox.base._unique_objects import Owner, close_own, fill_standard_descriptors, identify
from kernelbox.host.files._place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.host.files._home import Trusted


class Pinned(Owner):
    """A way to a private directory through a root, which checks it when it is opened."""

    def __init__(self, root: Trusted, path: str, home: str) -> None:
        self._root = root
        self._path = path
        self._home = home
        self._pin: _Pin | None = None

    def secret(self) -> bytes:
        return self._root.secret()

    def open(self) -> Place:
        return self._lend() or self._hold(self._root.open)

    def make(self) -> Place:
        return self._lend() or self._hold(self._root.make)

    def _lend(self) -> Place | None:
        pin = self._pin
        if pin is None:
            return None
        try:
            info, home = os.stat(self._path, follow_symlinks=False), os.stat(self._home, follow_symlinks=False)
        except OSError:
            return None
        ours = info.st_uid == home.st_uid == os.geteuid() and not info.st_mode & 0o077 and not home.st_mode & 0o022
        return _Lent(pin) if ours and (info.st_dev, info.st_ino) == pin.identity else None

    def _hold(self, find: Callable[[], Place]) -> Place:
        fill_standard_descriptors()  # templates inherit this one
        self._pin = _Pin(find())
        return _Lent(self._pin)


class _Pin(Owner):
    """Holds the descriptor until the last place that uses it is gone."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.identity = identify(place.fd)

    def __del__(self) -> None:
        close_own(self.place.fd, self.identity)


class _Lent(Place):
    """A place whose descriptor belongs to a pin, which it keeps alive."""

    __slots__ = ("_pin",)

    def __init__(self, pin: _Pin) -> None:
        super().__init__(pin.place.fd, pin.place.path)
        self._pin = pin

    def close(self) -> None:
        """Leaves the descriptor open, because it belongs to the pin."""
