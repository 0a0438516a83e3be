"""Jupyter's sessions: which notebook uses which kernel. They are tags of the kernel, so that every server sees them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelbox.host._record import KernelRecord

_PREFIX = "jupyter.session."


@dataclass(frozen=True, slots=True)
class NotebookSession:
    """One session, and the record of its kernel."""

    id: str
    path: str
    name: str
    type: str
    record: KernelRecord

    @property
    def tag(self) -> str:
        """What the session is called among the tags of its kernel."""
        return f"{_PREFIX}{self.id}"


def new_session(path: str, name: str, kind: str) -> tuple[str, str]:
    """Returns the tag of a new session, and its value."""
    return f"{_PREFIX}{uuid.uuid4()}", describe(path, name, kind)


def describe(path: str, name: str, kind: str) -> str:
    """Returns the value of a session's tag."""
    return json.dumps([path, name, kind], ensure_ascii=False)


def sessions_of(record: KernelRecord) -> list[NotebookSession]:
    """Returns the sessions of a kernel; a tag that another program has written may make no sense, and is none."""
    found = []
    for tag, value in record.tags.items():
        if tag.startswith(_PREFIX):
            try:
                path, name, kind = map(str, json.loads(value))
            except (ValueError, TypeError):
                continue
            found.append(NotebookSession(tag.removeprefix(_PREFIX), path, name, kind, record))
    return found


def all_sessions(records: Iterable[KernelRecord]) -> list[NotebookSession]:
    """Returns the sessions of kernels."""
    return [session for record in records for session in sessions_of(record)]
