"""What callers of a server may choose for a kernel: what its operator has named, and nothing by default."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.mcp_server import call, failure, run, stdio_client, text
from tests.support.server import Served, serving

from kernelbox import InvalidInput
from kernelbox.host.pythons._allowed_pythons import AllowedPythons, allow_pythons

ROOT = Path(__file__).resolve().parents[2]


def refusal(served: Served, **body: object) -> str:
    answers = [served.post("/kernels", body), served.post("/sessions/any", body)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json() == answers[1].json()
    return str(answers[0].json()["detail"])


@pytest.mark.parametrize("given", ["numpy", "Num_Py>=2,<3", "num.py[extra]==1.*", "num-py ~= 2.1"])
def test_a_named_package_may_have_versions_and_another_spelling(given: str) -> None:
    assert AllowedPythons(packages=frozenset({"numpy", "num-py"})).requirements([given]) is not None


@pytest.mark.parametrize(
    "given",
    [
        *("pandas", "numpy2", "numpy @ https://example.org/numpy.whl", "git+https://example.org/numpy", "./numpy"),
        *("numpy; python_version > '3'", "numpy pandas", "-r numpy", "", "numpy[x]@file:///numpy", "numpy>=1\npandas"),
    ],
)
def test_anything_but_a_named_package_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        AllowedPythons(packages=frozenset({"numpy"})).requirements(["numpy", given])


def test_a_star_allows_every_package_but_not_what_is_sandboxed(tmp_path: Path) -> None:
    assert allow_pythons({}, ["*"], "/", sandboxed=False).requirements(["a", "b>2"]) == ["a", "b>2"]
    with pytest.raises(InvalidInput, match="outside of the sandbox"):
        allow_pythons({}, ["*"], "/", sandboxed=True)
    with pytest.raises(InvalidInput, match="without versions"):
        allow_pythons({}, ["a>2"], "/", sandboxed=True)
    with pytest.raises(InvalidInput, match="no such file"):
        allow_pythons({"x": str(tmp_path / "x")}, [], "/", sandboxed=False)


def test_an_http_server_lets_callers_choose_what_it_names_and_nothing_else(
    home: Path, environment: Path, tmp_path: Path
) -> None:
    with serving(tmp_path, "--allow-python", str(environment), "--allow-package", "humanize") as served:
        made = served.post("/kernels", {"name": "other", "python": str(environment)}).json()
        assert (made["python_version"], made["requirements"]) == (sys.version.split()[0], None)
        assert str(environment) in served.execute("other", "import sys; sys.prefix")["text"]
        again = served.post("/sessions/other", {"python": str(environment)}).json()
        assert again["kernel_id"] == made["kernel_id"]
        assert refusal(served, python=sys.executable) == (
            f"python cannot be {sys.executable!r}: use {str(environment)!r}"
        )
        assert "this server installs 'humanize'" in refusal(served, requirements=["pandas"])
        served.http.delete("/kernels")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--port", "0", "--allow-python", "/no/python"], "python cannot be '/no/python'"),
        (["mcp", "--allow-package", "numpy"], "need --toolset kernels"),
    ],
)
def test_a_server_that_could_not_keep_to_its_options_does_not_start(home: Path, words: list[str], said: str) -> None:
    command = [sys.executable, "-m", "kernelbox", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_mcp_client_has_a_tool_for_it_if_there_is_something_to_choose(
    home: Path, environment: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        words = ["--toolset", "kernels", "--allow-python", str(environment)]
        async with stdio_client(tmp_path, *words) as client:
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "open_kernel"]
            assert tool.description is not None
            assert tool.description.endswith(f"python: {environment}. requirements: not allowed here.")
            said = await text(client, "open_kernel", kernel="other", python=str(environment))
            assert said == f"Kernel 'other' runs Python {sys.version.split()[0]}."
            shown = await text(client, "execute", code="import sys; print(sys.prefix)", kernel="other")
            assert str(environment) in shown
            assert "use " in await failure(client, "open_kernel", kernel="third", python="3.1")
            assert "installs nothing" in await failure(client, "open_kernel", kernel="third", requirements=["a"])
            await call(client, "close_kernel", kernel="other")

    run(scenario)


@pytest.mark.slow
def test_an_http_server_installs_what_it_names(home: Path, tmp_path: Path) -> None:
    path = f"{ROOT / '.bootstrap' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    words = ["--allow-package", "Humanize"]
    with serving(tmp_path, *words, KERNELBOX_CACHE=str(tmp_path / "cache"), PATH=path) as served:
        made = served.post("/kernels", {"name": "counted", "requirements": ["humanize>=4"]})
        assert made.status_code == 201, made.text
        assert made.json()["requirements"] == ["humanize>=4"]
        assert "1,000" in served.execute("counted", "import humanize; humanize.intcomma(1000)")["text"]
        served.http.delete("/kernels")
