"""Time travel as methods: the same on Kernel and AsyncKernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.colours import Colour

from kernelbox import CannotCopy, CheckpointNotFound, InvalidInput, KernelNotFound, list_kernels


@pytest.fixture(params=[False, True], ids=["Kernel", "AsyncKernel"])
def colour(request: pytest.FixtureRequest, home: Path) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


def test_a_kernel_goes_back_to_a_checkpoint_by_object_number_and_label(colour: Colour) -> None:
    kernel = colour.open("a")
    colour.call(kernel.execute, "x = 1")
    made = colour.call(kernel.checkpoint, "one")
    for to in (made, made.number, "one", None):
        colour.call(kernel.execute, "x = 2")
        assert colour.call(kernel.rollback, to) is kernel
        assert kernel.restored_from == made.number
        assert colour.call(kernel.execute, "x").return_value == "1"
    assert [each.label for each in colour.call(kernel.checkpoints)] == ["one"]
    with pytest.raises(CheckpointNotFound, match="'two'"):
        colour.call(kernel.rollback, "two")


def test_checkpoints_are_dropped_by_object_number_and_label(colour: Colour) -> None:
    kernel = colour.open("a")
    first = colour.call(kernel.checkpoint)
    colour.call(kernel.checkpoint)
    colour.call(kernel.checkpoint, "third")
    for which in (first, 2, "third"):
        assert colour.call(kernel.drop, which) is True
        assert colour.call(kernel.drop, which) is False
    assert colour.call(kernel.checkpoints) == []


def test_a_checkpoint_of_another_kernel_is_not_taken(colour: Colour) -> None:
    kernel, other = colour.open("a"), colour.open("b")
    made = colour.call(other.checkpoint)
    colour.call(kernel.checkpoint)
    with pytest.raises(CheckpointNotFound):
        colour.call(kernel.rollback, made)
    assert colour.call(kernel.drop, made) is False
    assert len(colour.call(kernel.checkpoints)) == 1


def test_branches_are_kernel_objects_and_one_takes_its_originals_place(colour: Colour) -> None:
    kernel = colour.open("a", timeout=50)
    colour.call(kernel.execute, "x = 1")
    one = colour.call(kernel.branch, "one")
    two, three = colour.call(kernel.branch, names=["two", "three"])
    for number, each in enumerate((one, two, three)):
        assert (type(each), each.parent) == (type(kernel), kernel.kernel_id)
        colour.call(each.execute, f"x += {number}")
    original = colour.call(three.promote)
    assert (original.name, original.kernel_id) == ("a", kernel.kernel_id)
    assert colour.call(original.execute, "x").return_value == "3"
    assert colour.call(kernel.execute, "x").return_value == "3"
    assert colour.call(one.execute, "x").return_value == "1"
    with pytest.raises(KernelNotFound, match="three"):
        colour.call(three.execute, "x")
    assert {record.name for record in list_kernels()} == {"a", "one", "two"}


def test_the_cells_of_a_branch_can_call_the_functions_of_its_original(colour: Colour) -> None:
    kernel = colour.open("a", tools=[double])
    branch = colour.call(kernel.branch, "b")
    assert colour.call(branch.execute, "double(21)").return_value == "42"


def test_what_cannot_be_copied_or_called_so_is_refused(colour: Colour) -> None:
    kernel = colour.open("a")
    with pytest.raises(InvalidInput, match="names"):
        colour.call(kernel.branch)
    with pytest.raises(InvalidInput, match="timeout"):
        colour.call(kernel.checkpoint, timeout="soon")
    with pytest.raises(TypeError, match="id you mean 'label'"):
        colour.call(kernel.checkpoint, labl="x")
    thread = "threading.Thread(target=time.sleep, args=(1e6,), daemon=True)"
    colour.call(kernel.execute, f"import threading, time; {thread}.start()")
    with pytest.raises(CannotCopy, match="Python thread"):
        colour.call(kernel.checkpoint)


def test_a_kernel_object_comes_back_from_the_dead(colour: Colour) -> None:
    kernel = colour.open("a")
    colour.call(kernel.execute, "x = 1")
    colour.call(kernel.checkpoint)
    died = colour.call(kernel.execute, "import os; os._exit(3)")
    assert (died.state, died.restored_from) == ("rolled back", 1)
    assert colour.call(kernel.execute, "x").return_value == "1"


def double(number: int) -> int:
    """Returns twice a number."""
    return 2 * number
