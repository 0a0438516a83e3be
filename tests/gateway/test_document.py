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
from tests.engine.support import DEADLINE, is_running, wait_for_end

from kernelbox import list_kernels
from kernelbox.gateway import KernelClient, KernelGateway

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
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway, forwarding(gateway.port) as (port, pinged):
            async with KernelClient(port=port, ping_interval=0.05):
                for _ in range(3):
                    async with asyncio.timeout(DEADLINE):
                        await pinged.get()

    asyncio.run(main())


@contextlib.asynccontextmanager
async def forwarding(port: int) -> AsyncIterator[tuple[int, asyncio.Queue[None]]]:
    """Stands between client and gateway; yields the port, and a queue that has an item for each ping."""
    pinged: asyncio.Queue[None] = asyncio.Queue()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, watched: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if watched and data[0] == 0x89:  # a whole ping frame (RFC 6455, 5.5.2)
                    pinged.put_nowait(None)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("localhost", port)
        await asyncio.gather(pass_on(reader, far_writer, watched=True), pass_on(far_reader, writer, watched=False))

    server = await asyncio.start_server(serve, "localhost", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], pinged
