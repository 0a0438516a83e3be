"""What every result can do: be read, shown, sent to a model, and raised."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, Literal, Protocol, Self

    from kernelbox.wire._results import ErrorInfo, OutputItem, Status
    from kernelbox.wire.results._model_content import Api

    class WholeText(Protocol):
        """Where the whole text of a result is kept."""

        def read(self) -> str: ...


# What a model reads of a cell that wrote and showed nothing.
_NOTHING = "(no output)"

# Characters of the text in a repr, which has 200 at most.
_IN_REPR = 80


class Readable:
    """A result: `str()` is what a model should read, a notebook shows its tables and pictures."""

    __slots__ = ()

    if TYPE_CHECKING:
        # The fields that a result has.
        @property
        def status(self) -> Status: ...
        @property
        def text(self) -> str | None: ...
        @property
        def output(self) -> str: ...
        @property
        def outputs(self) -> list[OutputItem]: ...
        @property
        def images(self) -> Sequence[str | Path]: ...
        @property
        def error(self) -> ErrorInfo | None: ...
        @property
        def state(self) -> Literal["kept", "lost", "rolled back"]: ...
        @property
        def duration_ms(self) -> int: ...
        @property
        def kept(self) -> WholeText | None: ...

    @property
    def ok(self) -> bool:
        """Whether the cell succeeded."""
        return self.status == "success"

    @property
    def stdout(self) -> str:
        """What was written to stdout; `output` is the same."""
        return self.output

    @property
    def tokens(self) -> int:
        """About how many tokens of a model `str()` takes; pictures are not counted."""
        from kernelbox.wire.results._shortening import estimate_tokens

        return estimate_tokens(str(self))

    def more(self, start: int = 0, end: int | None = None) -> str:
        """Returns the characters `start` to `end` of the whole text, also those that were cut; without `end`, the rest.

        They are read from the log of the kernel, which another process can do as well. Raises OutputNotKept if the log
        no longer has them. Positions count as in Python: negative ones from the end.
        """
        whole = (self.text or "") if self.kept is None else self.kept.read()
        return whole[start:end]

    def __str__(self) -> str:
        return self.text or _NOTHING

    def __repr__(self) -> str:
        text = str(self)
        shown = repr(text if len(text) <= _IN_REPR else f"{text[: _IN_REPR - 1]}…")
        shown = shown if len(shown) <= _IN_REPR + 20 else f"{shown[: _IN_REPR + 18]}…'"
        count = len(self.images)
        more = f" {count} image{'' if count == 1 else 's'}" if count else ""
        lost = "" if self.state == "kept" else f" state={self.state}"
        return f"<{type(self).__name__} {self.status} {shown}{more}{lost} {self.duration_ms} ms>"

    def raise_for_status(self) -> Self:
        """Returns the result if the cell succeeded; raises CodeExecutionError or ExecutionTimeout if not."""
        if self.ok:
            return self
        from kernelbox.wire.results._cell_errors import failure_of

        raise failure_of(self)  # type: ignore[arg-type]  # all that is read of it is here

    def to_content(
        self, api: Api, *, max_chars: int | None = None, max_image_px: int | None = None
    ) -> list[dict[str, Any]]:
        """Returns text and pictures as the blocks that an API takes as the content of a message.

        The text has at most `max_chars` characters. Pictures with a longer side than `max_image_px` are scaled down,
        which needs Pillow; where that is missing the text says so.
        """
        from kernelbox.wire.results._model_content import content_blocks

        shown = [image for item in self.outputs if (image := item.image_data) is not None]
        return content_blocks(api, str(self), shown, max_chars, max_image_px)

    def to_messages(
        self,
        api: Api,
        *,
        call_id: str | None = None,
        max_chars: int | None = None,
        max_image_px: int | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the messages that take the result to a model: append them to your conversation.

        With `call_id` they answer that tool call, without it they are a message of the user. For "mcp" it is one
        dictionary with the fields of CallToolResult. `max_chars` and `max_image_px` are those of `to_content`.
        """
        from kernelbox.wire.results._model_content import messages

        blocks = self.to_content(api, max_chars=max_chars, max_image_px=max_image_px)
        return messages(api, blocks, call_id=call_id, failed=not self.ok)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Shows the result in a notebook."""
        from kernelbox.wire.results._markup import to_html

        return {"text/plain": str(self), "text/html": to_html(self.outputs)}
