"""What is kept of the events of a cell that no caller waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelbox.core._orders import drop_oldest
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
