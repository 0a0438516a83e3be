"""Modules that a cell leaves where its host or template looks for others are not run outside of the sandbox."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE
from tests.support.sandbox import needs_linux

import kernelbox

pytestmark = [needs_linux, pytest.mark.usefixtures("own_home")]

# Leaves a module, and a package for those that are one, under each name that a program may import.
PLANT = """
import pathlib, sys
for name in {names!r}.split():
    pathlib.Path(name + '.py').write_text("open({marker!r}, 'a').write(__name__ + ' ')")
"""

HOST = """
import asyncio, os, sys
import kernelbox
from helpers import answer
box = kernelbox.get_or_create('box', sandbox=True)
assert kernelbox.execute(box, open('plant.txt').read(), timeout=100).ok
{body}
import late_helper
print('done', answer, late_helper.__file__)
"""

BODIES = {
    "approvals": """
result = kernelbox.execute(box, '!echo approved', approve=lambda request: True, timeout=100)
assert 'approved' in result.text, result.text
""",
    "wipe": "kernelbox.wipe()",
    "restart": "kernelbox.restart(box); kernelbox.destroy(box)",
    "listing": "kernelbox.list_kernels(); kernelbox.execute_with_retry('box', '1', lambda result, attempt: None)",
    "executor": """
async def main():
    async with kernelbox.CodeExecutor(sandbox=True, approve_shell_cmds=True) as executor:
        async for item in executor.stream('!echo approved'):
            if hasattr(item, 'accept'):
                await item.accept()
asyncio.run(main())
""",
    "tools": """
result = kernelbox.execute(box, 'from kernelbox.guest.tools import call', approve=lambda request: True, timeout=100)
try:
    kernelbox.generate_mcp_sources('x', {'command': sys.executable, 'args': ['-c', '']}, 'generated')
except Exception as exc:
    pass
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_a_host_that_runs_where_cells_write_runs_no_module_of_theirs(
    body: str, workspace: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    (workspace / "agent.py").write_text(HOST.format(body=body))
    (workspace / "helpers.py").write_text("answer = 42\n")
    (workspace / "late_helper.py").write_text("")
    names = " ".join([*sorted(sys.stdlib_module_names - {"__main__"}), "mcp", "anyio", "httpx", "pydantic", "brotli"])
    (workspace / "plant.txt").write_text(PLANT.format(names=names, marker=str(marker)))
    done = subprocess.run(
        [sys.executable, "agent.py"], cwd=workspace, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done 42 "), "modules of the program itself are found as ever"
    assert not marker.exists(), marker.read_text()


IN_PLACE = """
import pathlib, sys
from kernelbox import destroy, execute, get_or_create, wipe
def value(code):
    result = execute(box, code, timeout=100)
    assert result.ok, result.text
    return result.return_value
escaped = pathlib.Path(sys.argv[1])
box = get_or_create('one', sandbox=True)
for name in ('sitecustomize', 'usercustomize', 'IPython', 'contextlib', 'in_place'):
    planted = f"answer = 42; open({str(escaped)!r}, 'a').write({name!r})"
    value(f"open('src/{name}.py', 'w').write({planted!r})")
destroy(box)
wipe()  # and with it the template
box = get_or_create('another', sandbox=True)
assert not escaped.exists(), escaped.read_text()
assert value('import in_place; in_place.answer') == '42'
assert value('import sys; sys.flags.no_site') == '0'
assert value('sys.prefix') == repr(sys.prefix)
value('from multiprocessing import get_context')
spawned = '''get_context('spawn').Pool(1).apply(eval, ("__import__('in_place').answer",))'''
assert value(spawned) == '42'
wipe()
"""


def test_a_template_runs_nothing_from_where_a_path_file_leads_and_its_kernels_find_it(
    workspace: Path, tmp_path: Path
) -> None:
    # An environment in which a directory of the workspace is installed in place, on top of the one that runs this.
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    source = workspace / "src"
    source.mkdir()
    (source / "in_place.py").write_text("answer = 42")
    ours = Path(kernelbox.__file__).parent.parent
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ours}\n")
    (packages / "theirs.pth").write_text(f"{source}\nimport in_place\n")
    script = tmp_path / "script.py"
    script.write_text(IN_PLACE)
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", script, tmp_path / "escaped"],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
