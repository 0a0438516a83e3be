"""IPython's profile of a kernel: where `%store` and `%bookmark` keep things, created when they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from IPython.core import interactiveshell
from IPython.core.profiledir import ProfileDir
from IPython.external.pickleshare import PickleShareDB

from kernelbox.guest._stdlib import contextlib, os
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())


class LazyProfile(ProfileDir):
    """A profile directory that is not created before something is stored in it, so a kernel leaves HOME alone."""

    def _mkdir(self, path: str, mode: int | None = None) -> bool:
        return False

    def check_dirs(self) -> None:
        """Creates nothing."""

    def place(self, path: str) -> None:
        """Sets where `%store` and the like keep things, without the check that makes the directory."""
        self._trait_values["location"] = path


class Stored:
    """The part of a shell that keeps values beyond the process."""

    profile_dir: Any  # a LazyProfile
    _stored: PickleShareDB | None = None

    @property
    def db(self) -> Any:
        """What `%store` and `%bookmark` have kept. A copy of a kernel has a place of its own."""
        root = os.path.join(self.profile_dir.location, "db")
        if self._stored is None or str(self._stored.root) != root:
            self._stored = PickleShareDB(root)
        return self._stored

    @db.setter
    def db(self, made: object) -> None:
        """Ignores what IPython before 9.17 makes when the kernel has no place yet."""


@contextlib.contextmanager
def storing_nothing() -> Iterator[None]:
    """Keeps IPython before 9.17 from making a directory where the template works."""
    eager = vars(interactiveshell).get("PickleShareDB")
    if eager is not None:
        interactiveshell.PickleShareDB = str  # type: ignore[attr-defined]  # newer versions do not have it
    try:
        yield
    finally:
        if eager is not None:
            interactiveshell.PickleShareDB = eager  # type: ignore[attr-defined]
