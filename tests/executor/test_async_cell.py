"""AsyncCell: what `async for event in cell` yields, in which order, and what a caller can do meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.executor import run

from kernelbox import ApprovalRequest, ExecutionResult
from kernelbox.api._configured import kernels
from kernelbox.core._cell_options import CellOptions
from kernelbox.core._options import KernelOptions
from kernelbox.shells._asyncio_cell import AsyncCell, CellOutput
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.tools._toolbox import Toolbox

pytestmark = pytest.mark.usefixtures("home")

PIXEL = "R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
SHOW = f"from IPython.display import display; display({{'image/gif': '{PIXEL}'}}, raw=True)"


def reach() -> AsyncKernels:
    here = kernels()
    return AsyncKernels(here, KernelOptions(), Toolbox(here.config), advice="open another")


async def begin(code: str, options: CellOptions) -> tuple[AsyncKernels, AsyncCell]:
    reached = reach()
    return reached, await reached.begin(await reached.use("cell"), options.request(code), options)


def test_a_cell_yields_its_outputs_with_the_files_of_images_and_the_result_last(tmp_path: Path) -> None:
    async def scenario() -> list[object]:
        _, cell = await begin(f"print('a')\n{SHOW}\n1 + 1", CellOptions(images=str(tmp_path), shell="accept"))
        return [event async for event in cell]

    *others, result = run(scenario)
    outputs = [event for event in others if isinstance(event, CellOutput)]
    assert outputs == others
    assert isinstance(result, ExecutionResult)
    assert [output.item.kind for output in outputs] == ["stream", "display_data", "execute_result"]
    (image,) = (output.image for output in outputs if output.image is not None)
    assert result.images == [image]
    assert Path(image).parent == tmp_path


def test_a_request_is_yielded_and_the_cell_goes_on_when_it_is_answered() -> None:
    async def scenario() -> tuple[list[str], ExecutionResult]:
        _, cell = await begin("!echo hello", CellOptions())
        asked = []
        async for event in cell:
            if isinstance(event, ApprovalRequest):
                assert cell.open_requests() == [event]
                asked.append(str(event.tool_args["cmd"]))
                await event.accept()
            elif isinstance(event, ExecutionResult):
                return asked, event
        raise AssertionError("a cell ends with its result")

    asked, result = run(scenario)
    assert asked == ["echo hello"]
    assert result.output == "hello\n"


def test_a_cell_that_its_caller_leaves_is_stopped_and_its_kernel_is_free() -> None:
    async def scenario() -> str | None:
        reached, cell = await begin("print(1)\nwhile True: pass", CellOptions(shell="accept"))
        async for event in cell:
            if isinstance(event, CellOutput):
                break
        await cell.leave()
        assert cell.ended
        options = CellOptions(shell="accept")
        again = await reached.begin(cell.kernel, options.request("2"), options)
        return (await again.drive()).return_value

    assert run(scenario) == "2"


def test_the_advice_about_a_death_is_left_out_where_the_kernel_was_restarted() -> None:
    async def scenario(restarts: bool) -> str:
        reached, cell = await begin("print(1)\nimport time\ntime.sleep(1000)", CellOptions(shell="accept"))
        driving = asyncio.ensure_future(cell.drive())
        while "1" not in cell.text:  # noqa: ASYNC110  # what a cell writes has no event here
            await asyncio.sleep(0.01)
        await (reached.restart("cell") if restarts else reached.destroy("cell"))
        result = await driving
        await reached.report_death(cell.kernel, result)
        assert result.error is not None
        return result.error.evalue

    assert run(lambda: scenario(False)) == "destroyed; its variables are lost; open another"
    assert run(lambda: scenario(True)) == "restarted; its variables are lost"
