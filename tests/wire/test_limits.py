"""The limits that users are told are those that are in force, and two sides of the wire know the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbox.wire import _bundle, _framing, _json, _output_limit, _schema
from kernelbox.wire.results import _transcript

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors-and-timeouts.md"


def mib(size: int) -> str:
    return f"{size / 2**20:.12g} MiB"


ROWS = {
    "`outputs`": f"the first and the last {_transcript._ITEMS}; {mib(_transcript.ROOM)} of memory",
    "`return_value`": f"{_output_limit.WHOLE_VALUE:,} characters or the limit, whichever is more, and never more than "
    f"{_bundle._LONGEST_TEXT:,}",
    "an error": f"never more than {_schema.MAX_ERROR:,} characters each",
    "one display": f"{_schema.MAX_MIME_TYPES} MIME types, {_bundle._TEXT_ROOM:,} characters, {_json.MAX_VALUES:,} JSON "
    f"values nested {_json.MAX_DEPTH} levels deep, {mib(_bundle._BLOB_ROOM)} of pictures; a `display_id` of "
    f"{_schema.MAX_DISPLAY_ID:,} characters",
    "`changed`": f"{_schema.MAX_CHANGED:,} names of up to {_schema.MAX_VARIABLE} characters",
}


@pytest.mark.parametrize("what", ROWS)
def test_the_document_has_the_limits_that_are_in_force(what: str) -> None:
    (row,) = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {what} |")]
    assert ROWS[what] in row


def test_the_limits_of_a_frame_are_those_of_processes_of_other_versions() -> None:
    assert mib(_framing.MAX_FRAME) == "64 MiB"
    assert _framing.MAX_TEXT == 36_000_000
    assert mib(_framing._MAX_OUTPUT) == "8 MiB"
    assert _json.MAX_CHARACTERS == 8_000_000
    assert (_schema.MAX_MIME_TYPE, _schema.MAX_LINES, _schema.MAX_TOLD_CODE) == (255, 10_000, 1_000_000)
