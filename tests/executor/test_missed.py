"""What is kept of the events of a cell that no caller waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelbox.core.cells._execution_orders import drop_oldest
from kernelbox.wire._results import OutputItem

if TYPE_CHECKING:
    from kernelbox.wire._execution import Event


def test_the_last_thousand_events_are_kept() -> None:
    events: list[Event] = [OutputItem("stream", text=str(n)) for n in range(1500)]
    drop_oldest(events)
    assert [event.text for event in events if isinstance(event, OutputItem)] == [str(n) for n in range(500, 1500)]


def test_pictures_beyond_the_room_are_dropped_the_oldest_first() -> None:
    picture = "x" * (20 * 1024 * 1024)
    events: list[Event] = [OutputItem("display_data", text=str(n), data={"image/png": picture}) for n in range(5)]
    drop_oldest(events)
    assert [event.text for event in events if isinstance(event, OutputItem)] == ["2", "3", "4"]


def test_events_that_take_all_the_room_are_kept_and_with_a_character_more_the_oldest_is_not() -> None:
    half = "x" * (32 * 1024 * 1024)
    fits: list[Event] = [OutputItem("display_data", data={"image/png": half, "x": 5}), OutputItem("stream", text=half)]
    drop_oldest(fits)
    assert len(fits) == 2
    larger: list[Event] = [*fits, OutputItem("stream", text="y")]
    drop_oldest(larger)
    assert larger == [*fits[1:], larger[-1]]
