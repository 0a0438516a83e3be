"""Sentences of `ipybox.kernel_mgr`'s documentation that the other tests do not hold us to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.bounded import run
from tests.support.cells import DEADLINE, is_running, wait_for_end

from kernelbox import list_kernels
from kernelbox.gateway import ExecutionError, KernelClient, KernelGateway

from .test_gateway import connected

pytestmark = pytest.mark.usefixtures("home")

USE = """
import asyncio, sys
from kernelbox.gateway import KernelClient, KernelGateway
async def main():
    level, shown = sys.argv[1:]
    async with KernelGateway(port=0, log_level=level, log_to_stderr=shown == "shown") as gateway:
        async with KernelClient(port=gateway.port) as client:
            await client.execute("1")
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "shown", "told"), [("INFO", "shown", True), ("ERROR", "shown", False), ("INFO", "hidden", False)]
)
def test_the_log_goes_to_stderr_where_that_is_asked_for_and_has_what_the_level_says(
    tmp_path: Path, level: str, shown: str, told: bool
) -> None:
    command = [sys.executable, "-c", USE, level, shown]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert ('"level": "INFO"' in done.stderr) is told, done.stderr


def test_a_gateway_that_does_not_stop_in_time_is_killed_and_its_kernels_with_it(tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        gateway = KernelGateway(port=0, working_dir=tmp_path)
        await gateway.start()
        client = KernelClient(port=gateway.port)
        await client.connect()
        kernel = int(str((await client.execute("import os; print(os.getpid())")).text))
        assert gateway._process is not None
        pid = gateway._process.pid
        os.kill(pid, signal.SIGSTOP)
        await gateway.stop(timeout=0.1)
        await client.disconnect()
        return pid, kernel

    pid, kernel = asyncio.run(main())
    assert not is_running(pid)
    wait_for_end(kernel)


@pytest.mark.slow
def test_images_are_saved_in_images_of_the_current_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> list[Path]:
        async with KernelGateway(port=0) as gateway, KernelClient(port=gateway.port) as client:
            return (await client.execute("import matplotlib.pyplot as plt; plt.plot([1]); plt.show()")).images

    (image,) = asyncio.run(main())
    assert image.resolve().parent == (tmp_path / "images").resolve()
    assert image.read_bytes().startswith(b"\x89PNG")


def test_disconnect_deletes_the_kernel_and_reset_the_one_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway:
            client = KernelClient(port=gateway.port)
            await client.connect()
            first = client.kernel_id
            assert [record.kernel_id for record in list_kernels()] == [first.replace("-", "")]
            await client.reset()
            assert [record.kernel_id for record in list_kernels()] == [client.kernel_id.replace("-", "")]
            assert client.kernel_id != first
            await client.disconnect()
            assert list_kernels() == []
            with pytest.raises(RuntimeError, match="not connected"):
                _ = client.kernel_id

    asyncio.run(main())


def test_definitions_of_earlier_executions_are_there_for_later_ones(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (_, client):
            await client.execute("def double(x): return 2 * x")
            assert (await client.execute("double(21)")).text == "42"

    asyncio.run(main())


def test_a_client_that_does_nothing_pings_its_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway, Way.to(gateway.port) as way:
            async with KernelClient(port=way.port, ping_interval=0.05):
                for _ in range(3):
                    await way.pinged.get()

    run(main)


def test_a_client_whose_connection_is_lost_goes_on_in_the_same_kernel(tmp_path: Path) -> None:
    async def main() -> None:
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway, Way.to(gateway.port) as way:
            async with KernelClient(port=way.port) as client:
                items = client.stream("x = 1\nprint('on')\nimport time\ntime.sleep(1000)")
                assert await anext(items) == "on\n"
                way.cut()
                with pytest.raises(ExecutionError) as caught:
                    await anext(items)
                assert (caught.value.ename, caught.value.state) == ("ConnectionLost", "kept")
                await client.interrupt()
                assert (await client.execute("x")).text == "1"

    run(main)


def test_a_client_that_cannot_reach_its_kernel_leaves_none_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway, Way.to(gateway.port) as way:
            way.refused = b"Upgrade: websocket"
            with pytest.raises(RuntimeError, match="its channels cannot be reached"):
                await KernelClient(port=way.port).connect(retries=1)
            assert list_kernels() == []

    run(main)


class Way:
    """What stands between client and gateway: it tells of pings, cuts connections, and ends those that say a word."""

    def __init__(self, far: int) -> None:
        self.port = 0
        self.pinged: asyncio.Queue[None] = asyncio.Queue()
        self.refused = b""
        self._far = far
        self._writers: list[asyncio.StreamWriter] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, far: int) -> AsyncIterator[Way]:
        way = cls(far)
        async with await asyncio.start_server(way._serve, "localhost", 0) as server:
            way.port = server.sockets[0].getsockname()[1]
            yield way

    def cut(self) -> None:
        """Ends every connection that there is."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("localhost", self._far)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pass_on(reader, far_writer), self._pass_back(far_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.refused and self.refused in data:
                    break
                if data[0] == 0x89:  # a whole ping frame (RFC 6455, 5.5.2)
                    self.pinged.put_nowait(None)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
