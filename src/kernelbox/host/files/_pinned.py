"""A directory that stays open between uses: opening it anew, from the home on, is most of what a short call costs.

It is looked up anew when its path leads to another directory than the open one, to none, or when it or the home that it
is in has been opened to others.
"""

from __future__ import annotations

import os

from kernelbox.host.files._place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._home import Trusted


class Pinned:
    """Leads to a private directory, by way of a root that checks it when it is opened."""

    def __init__(self, root: Trusted, path: str, home: str) -> None:
        self._root = root
        self._path = path
        self._home = home
        self._pin: _Pin | None = None

    def __repr__(self) -> str:
        return f"<Pinned {self._path!r}{' open' if self._pin else ''}>"

    def secret(self) -> bytes:
        """Returns the root's secret."""
        return self._root.secret()

    def open(self) -> Place:
        """Opens the directory; raises FileNotFoundError if it is missing."""
        return self._lend() or self._hold(self._root.open())

    def make(self) -> Place:
        """Opens the directory, which is made if it is missing."""
        return self._lend() or self._hold(self._root.make())

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

    def _hold(self, place: Place) -> Place:
        self._pin = _Pin(place)
        return _Lent(self._pin)


class _Pin:
    """Holds the descriptor until the last place that was lent is gone."""

    def __init__(self, place: Place) -> None:
        self.place = place
        info = os.fstat(place.fd)
        self.identity = (info.st_dev, info.st_ino)

    def __del__(self) -> None:
        self.place.close()


class _Lent(Place):
    """A place whose descriptor belongs to a pin, which it keeps."""

    __slots__ = ("_pin",)

    def __init__(self, pin: _Pin) -> None:
        super().__init__(pin.place.fd, pin.place.path)
        self._pin = pin

    def close(self) -> None:
        """Leaves the descriptor open: it is the pin's."""
