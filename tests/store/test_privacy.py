"""What other accounts of the machine find of kernels: no port, and no directory that they may enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.support.store import run_python

from kernelbox import execute, get_or_create

SHOW = "from IPython.display import display\ndisplay({'image/png': b'x'}, raw=True)"


def test_a_kernel_and_its_template_listen_on_no_port(own_home: Path) -> None:
    kernel = get_or_create("private")
    assert execute(kernel, "1 + 1").return_value == "2"
    parent = execute(kernel, "import os\nos.getppid()").return_value
    for pid in (str(kernel.pid), str(parent)):
        held = sockets_of(pid)
        assert held, "it has Unix sockets at least"
        assert not held & internet_sockets(pid)


def test_directories_are_the_users_alone_whatever_the_umask_is(tmp_path: Path) -> None:
    code = (
        f"import os\nos.umask(0)\nos.environ['KERNELBOX_HOME'] = {str(tmp_path / 'home')!r}\n"
        f"from kernelbox import execute, wipe\nexecute('private', {SHOW!r})\n"
        "for path, _, _ in os.walk(os.environ['KERNELBOX_HOME']): print(oct(os.stat(path).st_mode), path)\nwipe()"
    )
    told = [line.split(maxsplit=1) for line in run_python(code).stdout.splitlines()]
    assert {"runtime", "names", "locks", "images"} <= {os.path.basename(path) for _, path in told}
    assert {stat.S_IMODE(int(mode, 8)) for mode, _ in told} == {0o700}


def sockets_of(pid: str) -> set[str]:
    """Returns the inodes of the sockets that a process has open."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}


def internet_sockets(pid: str) -> set[str]:
    """Returns the inodes of the internet sockets in a process's network (proc_pid_net(5))."""
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6", "udp", "udp6")]
    return {line.split()[9] for table in tables if table.exists() for line in table.read_text().splitlines()[1:]}
