"""KernelGateway and KernelClient, as `ipybox.kernel_mgr` documents them, with real gateways and kernels."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.bounded import BEGUN, run
from tests.support.cells import DEADLINE, eventually, is_running, wait_for_end
from tests.support.homes import new_home

from kernelbox import InvalidInput, checkpoint, list_kernels, rollback
from kernelbox.gateway import ExecutionError, ExecutionResult, KernelClient, KernelGateway

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def gateway_home() -> Iterator[Path]:
    with new_home() as home:
        yield home


@pytest.fixture(scope="module")
def port(key_file: Path, gateway_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Runs the gateway that most tests share."""
    with running(tmp_path_factory.mktemp("gateway"), KERNELBOX_HOME=str(gateway_home), KERNEL_ENV_GIVEN="g") as port:
        yield port


@contextmanager
def running(directory: Path, **env: str) -> Iterator[int]:
    """Runs a gateway as a program; returns its port."""
    command = [sys.executable, "-m", "kernelbox.gateway", "--host", "127.0.0.1", "--port", "0", "--log-level", "error"]
    command += ["--limit", "files=2000"]
    with subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    ) as process:
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        process.terminate()
        assert process.wait(DEADLINE) == 0


def with_client(port: int, directory: Path, use: Callable[[KernelClient], Awaitable[Any]]) -> Any:
    """Runs a coroutine with a client."""

    async def main() -> Any:
        async with KernelClient(host="127.0.0.1", port=port, images_dir=directory / "images") as client:
            return await use(client)

    return asyncio.run(main())


def test_the_program_gives_its_kernels_limits(port: int, tmp_path: Path) -> None:
    code = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
    result = with_client(port, tmp_path, lambda client: client.execute(code))
    assert result.text == "(2000, 2000)"


@asynccontextmanager
async def connected(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[KernelGateway, KernelClient]]:
    async with KernelGateway(port=0, working_dir=tmp_path, **options) as gateway:
        async with KernelClient(port=gateway.port, images_dir=tmp_path / "images") as client:
            yield gateway, client


@pytest.mark.parametrize(
    ("code", "ending", "told"),
    [
        ("import os; os._exit(3)", "died", "status 3; the kernel was restored from checkpoint 1; execution 2 is lost"),
        ("begun.touch(); time.sleep(1000)", "rolled back", "while the cell ran, the kernel was rolled back"),
    ],
)
def test_a_client_learns_that_its_kernel_was_set_back_to_a_checkpoint(
    tmp_path: Path, code: str, ending: str, told: str
) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (_, client):
            (kernel,) = list_kernels()
            await client.execute("import pathlib, time; x, begun = 1, pathlib.Path('begun')")
            await asyncio.to_thread(checkpoint, kernel)
            running = asyncio.ensure_future(client.execute(code))
            if ending == "rolled back":
                await asyncio.to_thread(eventually, (tmp_path / "begun").exists)
                await asyncio.to_thread(rollback, kernel)
            with pytest.raises(ExecutionError, match=told) as caught:
                await running
            result = caught.value.result
            assert result is not None
            assert (caught.value.state, result.ending) == ("rolled back", ending)
            assert (result.restored_from, result.lost_executions) == (1, [2])
            assert "reset()" not in str(caught.value)
            assert "variables are lost" not in str(caught.value)
            assert (await client.execute("print(x)")).text == "1"

    run(main)


def test_the_signatures_are_the_documented_ones() -> None:
    def defaults(function: Callable[..., object]) -> dict[str, object]:
        parameters = list(inspect.signature(function).parameters.values())
        return {each.name: each.default for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}

    assert defaults(KernelGateway) == {
        "host": "localhost",
        "port": 8888,
        "sandbox": False,
        "sandbox_config": None,
        "log_level": "INFO",
        "log_to_stderr": False,
        "env": None,
    }
    assert defaults(KernelClient) == {"host": "localhost", "port": 8888, "images_dir": None, "ping_interval": 10}
    assert defaults(KernelGateway(port=0).stop) == {"timeout": 10}
    client = KernelClient()
    assert defaults(client.connect) == {"retries": 10, "retry_interval": 1.0}
    assert defaults(client.execute)["timeout"] == defaults(client.stream)["timeout"] == 120
    assert issubclass(ExecutionError, Exception)
    assert ExecutionResult("a", []) == ExecutionResult(text="a", images=[])


@pytest.mark.parametrize("port", [70_000, -1, "8888", None, True])
def test_a_port_that_there_is_not_is_refused(port: Any) -> None:
    for make in (KernelGateway, KernelClient):
        with pytest.raises(InvalidInput, match="port cannot be"):
            make(port=port)


def test_the_documents_example_runs(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        result = await client.execute("print('hello')")
        assert result.text == "hello"
        items = [item async for item in client.stream("print('hello')")]
        assert items == ["hello\n", ExecutionResult("hello", [])]
        assert client.kernel_id
        assert (await client.execute("x = 1")).text is None
        assert (await client.execute("x")).text == "1"

    with_client(port, tmp_path, use)


def test_chunks_come_while_the_cell_runs(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        items = client.stream(
            f"print('one')\nimport os, time\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.01)"
        )
        assert await anext(items) == "one\n"
        (tmp_path / "go").touch()
        assert [item async for item in items] == [ExecutionResult("one", [])]

    with_client(port, tmp_path, use)


def test_every_cell_begins_in_the_working_directory_of_its_client(port: int, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    async def use() -> list[str | None]:
        async with KernelClient(host="127.0.0.1", port=port, working_dir=tmp_path / "work") as client:
            cells = ("import os; os.getcwd()", "os.chdir('/')", "os.getcwd()")
            said = [(await client.execute(code)).text for code in cells]
            await client.reset()
            return [*said, (await client.execute("import os; os.getcwd()")).text]

    where = repr(str(tmp_path / "work"))
    assert asyncio.run(use()) == [where, f"[kernelbox] cwd reset to {tmp_path / 'work'}", where, where]


def test_images_are_files_in_the_images_directory(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> ExecutionResult:
        return await client.execute("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show(); plt.plot([2, 1])")

    result = with_client(port, tmp_path, use)
    assert len(result.images) == 2
    for path in result.images:
        assert path.parent == tmp_path / "images"
        assert path.read_bytes().startswith(b"\x89PNG")


def test_five_megabytes_arrive_whole(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> ExecutionResult:
        return await client.execute("print('é' * 5_000_000)")

    assert with_client(port, tmp_path, use).text == "é" * 5_000_000


def test_an_error_carries_what_was_written_before_and_the_kernel_goes_on(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        with pytest.raises(ExecutionError, match="ZeroDivisionError: division by zero") as caught:
            await client.execute("x = 3; print('before'); 1 / 0")
        assert caught.value.ename == "ZeroDivisionError"
        assert caught.value.text is not None
        assert caught.value.text.startswith("before\n")
        assert (await client.execute("x")).text == "3"

    with_client(port, tmp_path, use)


def test_a_timeout_interrupts_the_cell_and_keeps_the_variables(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        with pytest.raises(TimeoutError, match=f"timed out after {BEGUN:g} s") as caught:
            await client.execute("x = 4; print('before')\nwhile True: pass", timeout=BEGUN)
        assert caught.value.text.startswith("before")  # type: ignore[attr-defined]  # an ExecutionTimeout
        assert (await client.execute("x")).text == "4"

    with_client(port, tmp_path, use)


def test_a_cell_that_swallows_interrupts_costs_its_kernel_and_no_more(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(0.1)"
        with pytest.raises(TimeoutError, match="variables are lost"):
            await client.execute(stubborn, timeout=BEGUN)
        assert (await client.execute("1 + 1")).text == "2"

    with_client(port, tmp_path, use)


def test_a_kernel_that_dies_is_told_and_a_reset_gives_another(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        with pytest.raises(ExecutionError) as caught:
            await client.execute("print('last words'); import os; os.kill(os.getpid(), 9)")
        assert (caught.value.ename, caught.value.state) == ("KernelDied", "lost")
        assert caught.value.evalue.endswith("its variables are lost; reset() opens a fresh one")
        before = client.kernel_id
        await client.reset()
        assert client.kernel_id != before
        assert (await client.execute("1 + 1")).text == "2"

    with_client(port, tmp_path, use)


def test_a_reset_gives_a_clean_kernel(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        await client.execute("x = 1")
        await client.reset()
        with pytest.raises(ExecutionError, match="NameError"):
            await client.execute("x")

    with_client(port, tmp_path, use)


def test_two_calls_at_once_queue_and_get_each_their_own(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        results = await asyncio.gather(*(client.execute(f"print({n})") for n in range(20)))
        assert [result.text for result in results] == [str(n) for n in range(20)]

    with_client(port, tmp_path, use)


def test_leaving_a_stream_interrupts_its_cell(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        items = client.stream("x = 1\nprint('on')\nimport time\ntime.sleep(1000)")
        async for _ in items:
            break
        await items.aclose()
        assert (await client.execute("x")).text == "1"
        os.mkfifo(tmp_path / "began")
        code = f"import time; open('{tmp_path}/began', 'w').close(); time.sleep(1000)"
        task = asyncio.ensure_future(client.execute(code))
        await asyncio.to_thread((tmp_path / "began").read_bytes)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.execute("x")).text == "1"

    with_client(port, tmp_path, use)


def test_an_interrupt_is_an_error_of_the_cell(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        items = client.stream("print('on')\nimport time\ntime.sleep(1000)")
        assert await anext(items) == "on\n"
        await client.interrupt()
        with pytest.raises(ExecutionError, match="KeyboardInterrupt"):
            await anext(items)

    with_client(port, tmp_path, use)


def test_kernels_see_only_the_variables_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    monkeypatch.setenv("KERNEL_ENV_OTHER", "o")

    async def main() -> None:
        async with connected(tmp_path, env={"GIVEN": "g"}) as (_, client):
            code = "import os; print([os.environ.get(n) for n in ('GIVEN', 'SECRET', 'OTHER')])"
            assert (await client.execute(code)).text == "['g', None, None]"

    asyncio.run(main())


def test_a_gateway_is_started_once_and_stopped_as_often_as_one_likes(tmp_path: Path) -> None:
    async def main() -> None:
        gateway = KernelGateway(port=0, working_dir=tmp_path)
        await gateway.stop()
        await gateway.join()
        await gateway.start()
        with pytest.raises(RuntimeError, match="running already"):
            await gateway.start()
        joined = asyncio.ensure_future(gateway.join())
        await gateway.stop()
        await joined
        await gateway.stop()
        await gateway.start()
        assert gateway.running
        await gateway.stop()
        assert not gateway.running

    asyncio.run(main())


def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async def main() -> None:
        gateway = KernelGateway(port=0, working_dir=tmp_path)
        starting = asyncio.ensure_future(gateway.start())
        while gateway._process is None:  # noqa: ASYNC110  # there is nothing that tells
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not gateway.running

    asyncio.run(main())


def test_a_client_goes_straight_to_its_gateway_whatever_proxy_is_set(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "ws_proxy", "WS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def use(client: KernelClient) -> None:
        assert (await client.execute("1 + 1")).text == "2"

    with_client(port, tmp_path, use)


def test_a_stopped_gateway_leaves_no_kernel(tmp_path: Path) -> None:
    pids: list[int] = []

    async def main() -> None:
        gateway = KernelGateway(port=0, working_dir=tmp_path)
        await gateway.start()
        client = KernelClient(port=gateway.port)
        await client.connect()
        code = "import os, subprocess; print(os.getpid(), subprocess.Popen(['sleep', '1000']).pid)"
        pids.extend(map(int, str((await client.execute(code)).text).split()))
        await gateway.stop()
        assert not any(is_running(pid) for pid in pids)
        await client.disconnect()

    asyncio.run(main())
    assert list_kernels() == []


def test_ctrl_c_in_a_terminal_does_not_reach_the_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway:
            assert gateway._process is not None
            pid = gateway._process.pid
            assert os.getsid(pid) == pid, "a terminal signals the processes of its own session"

    asyncio.run(main())


def test_a_gateway_starts_whatever_modules_are_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("1 / 0")

    async def main() -> None:
        async with KernelGateway(port=0, working_dir=tmp_path) as gateway:
            assert gateway.running

    asyncio.run(main())


def count_kernels(port: int) -> int:
    return len(httpx2.get(f"http://127.0.0.1:{port}/api/kernels", trust_env=False).json())


def test_a_disconnect_that_is_cancelled_ends_the_kernel(port: int) -> None:
    async def main() -> None:
        before, client = count_kernels(port), KernelClient(host="127.0.0.1", port=port)
        await client.connect()
        leaving = asyncio.ensure_future(client.disconnect())
        await asyncio.sleep(0)  # until it waits
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        while await asyncio.to_thread(count_kernels, port) > before:
            pass

    run(main)


def test_a_client_opens_one_kernel_however_often_it_connects(port: int) -> None:
    async def main() -> None:
        before, client = count_kernels(port), KernelClient(host="127.0.0.1", port=port)
        first, second = await asyncio.gather(client.connect(), client.connect(), return_exceptions=True)
        assert (first, str(second)[:31]) == (None, "the client is connected already")
        with pytest.raises(RuntimeError, match="connected already"):
            await client.connect()
        assert count_kernels(port) == before + 1
        await client.disconnect()
        assert count_kernels(port) == before

    asyncio.run(main())


@pytest.mark.parametrize(("status", "asked"), [(401, 1), (422, 1), (500, 3), (503, 3)])
def test_a_gateway_is_asked_again_unless_its_refusal_is_final(status: int, asked: int) -> None:
    requests: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            client = KernelClient("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(RuntimeError, match=f"cannot be used: it answered {status}"):
                await client.connect(retries=3, retry_interval=0)

    asyncio.run(main())
    assert requests == [b"POST /api/kernels HTTP/1.1\r\n"] * asked


def test_a_port_in_use_is_an_error_of_start(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            gateway = KernelGateway(host="127.0.0.1", port=taken.getsockname()[1], working_dir=tmp_path)
            with pytest.raises(RuntimeError, match="in use"):
                await gateway.start()
            assert not gateway.running

    asyncio.run(main())


def test_a_kernel_that_does_not_start_in_time_is_given_up() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = KernelClient(host="127.0.0.1", port=silent.getsockname()[1], kernel_init_timeout=0.2)
            with pytest.raises(RuntimeError, match=r"has started within 0\.2 s"):
                await client.connect()

    asyncio.run(main())


def test_a_gateway_that_is_not_there_is_tried_and_then_an_error() -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            client = KernelClient(host="127.0.0.1", port=unused.getsockname()[1])
            with pytest.raises(RuntimeError, match="cannot be used: nothing answers there; start a gateway"):
                await client.connect(retries=2, retry_interval=0.01)
            for use in (lambda: client.kernel_id, lambda: client.execute("1").send(None)):
                with pytest.raises(RuntimeError, match="not connected"):
                    use()
            await client.disconnect()

    asyncio.run(main())


def test_a_cell_that_runs_when_its_client_disconnects_ends_with_its_kernel(port: int, tmp_path: Path) -> None:
    async def use(client: KernelClient) -> None:
        items = client.stream("print('on')\nimport time\ntime.sleep(1000)")
        assert await anext(items) == "on\n"
        ending = asyncio.ensure_future(anext(items))
        await asyncio.sleep(0)  # until it waits for the cell
        await client.disconnect()
        with pytest.raises(ExecutionError) as caught:
            await ending
        assert (caught.value.ename, caught.value.state) == ("KernelDied", "lost")

    with_client(port, tmp_path, use)


def test_a_gateway_that_is_killed_ends_the_execution(tmp_path: Path) -> None:
    async def main() -> None:
        async with connected(tmp_path) as (gateway, client):
            items = client.stream("print('on')\nimport time\ntime.sleep(1000)")
            assert await anext(items) == "on\n"
            assert gateway._process is not None
            gateway._process.kill()
            with pytest.raises(ExecutionError) as caught:
                await anext(items)
            assert caught.value.state == "lost"

    asyncio.run(main())


HOST = """
import asyncio, sys
from kernelbox.gateway import KernelClient, KernelGateway
async def main():
    async with KernelGateway(port=0) as gateway, KernelClient(port=gateway.port) as client:
        pid = (await client.execute("import os; print(os.getpid())")).text
        print(gateway._process.pid, pid, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_gateway_and_kernels_end_when_the_host_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert len(pids) == 2
        host.send_signal(signal.SIGKILL)
        host.wait(DEADLINE)
    for pid in pids:
        wait_for_end(pid)


def test_a_log_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        KernelGateway(log_level="LOUD")


def test_a_token_is_used_by_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_TOKEN", "0123456789abcdef0123")

    async def main() -> None:
        async with connected(tmp_path) as (gateway, client):
            assert (await client.execute("1 + 1")).text == "2"
            monkeypatch.delenv("KERNELBOX_TOKEN")
            with pytest.raises(RuntimeError, match="401"):
                await KernelClient(port=gateway.port).connect()

    asyncio.run(main())
