"""What the keys of a console do: Enter ends a block as in IPython, Tab completes from the kernel's live objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from kernelbox.api._configured import kernels

# Seconds that a key waits for a kernel that is busy with another client's cell.
_PATIENCE = 0.5


class KernelCompleter(Completer):
    """Completes from the kernel's live objects, while Python is typed."""

    def __init__(self, name: str, is_python: Callable[[], bool]) -> None:
        self._name = name
        self._is_python = is_python

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        if not self._is_python():
            return
        args: dict[str, object] = {"code": document.text, "cursor_pos": document.cursor_position}
        reply = _ask(self._name, "complete", args)
        matches, start = reply.get("matches"), reply.get("cursor_start")
        if not isinstance(matches, list) or not isinstance(start, int):
            return
        for match in matches:
            yield Completion(str(match), start_position=min(0, start - document.cursor_position))


def make_key_bindings(name: str, is_python: Callable[[], bool]) -> KeyBindings:
    """Returns what Enter does, and Esc Enter, which always begins a new line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        document = buffer.document
        in_last_line = document.on_last_line or not document.text_after_cursor.strip()
        # In IPython a single line runs wherever the cursor is, and of several the part before it decides.
        typed = document.text if document.line_count == 1 else document.text_before_cursor
        reply = _ask(name, "is_complete", {"code": typed}) if is_python() else {}
        if not is_python() and document.text.endswith("\\"):
            buffer.insert_text("\n")
        elif in_last_line and reply.get("status") != "incomplete":
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + _indent(reply))

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _indent(reply: dict[str, object]) -> str:
    """Returns the indentation of the next line. Other text from a kernel must not appear as if it were typed."""
    indent = reply.get("indent")
    return indent if isinstance(indent, str) and not indent.strip(" ") else ""


def _ask(name: str, what: str, args: dict[str, object]) -> dict[str, object]:
    here = kernels()
    current = here.find(name)
    if current is None or current.status != "idle":
        return {}
    return here.kernel(current).ask(what, args, patience=_PATIENCE) or {}
