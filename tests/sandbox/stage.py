"""Puts up targets, has every attack tried by a plain kernel and by sandboxed ones, and prints what came of each.

A program of its own, so that it can be run as any user, by `as_user.py`: `python stage.py DIRECTORY`, and with a word
behind it only the attacks of the groups that have it in their names. As the superuser
it runs in no other mount namespace than one of its own, because attacks that get through without a sandbox change it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from kernelbox import KernelRecord, destroy, execute, get_or_create, status, wipe

sys.path.insert(0, str(Path(__file__).resolve().parent))

from attacks import ATTACKS  # type: ignore[import-not-found]  # run as a program, it has no package

# For the superuser srt is no sandbox.
LEVELS = ("none", "native", *(["srt"] if os.getuid() != 0 else []))

_numbers = itertools.count()

# Seconds. Far beyond what an attack takes.
PATIENCE = 60.0


def main(base: Path) -> dict[str, dict[str, bool]]:
    """Returns of each attack whether it got through without a sandbox, and with one, and whether the kernel went on."""
    assert os.getuid() != 0 or os.path.ismount(base / "mounted"), "run it by as_user.py, which makes the namespace"
    with contextlib.ExitStack() as stack:
        targets = put_up(base, stack)
        results: dict[str, dict[str, bool]] = {}
        for attack in (attack for attack in ATTACKS if all(word in attack.group for word in sys.argv[2:])):
            told: dict[str, bool] = {}
            for level in LEVELS:
                through, usable = attempt(level, attack.program, targets, base)
                told |= {level: through, f"{level} usable": usable}
            results[f"{attack.group}: {attack.name}"] = told
        return results


def attempt(level: str, program: str, targets: dict[str, Any], base: Path) -> tuple[bool, bool]:
    """Tries an attack in a workspace that is as it was; returns whether it got through, and if the kernel goes on."""
    # In srt a new one each time, and so a new srt, which has looked at it as it is.
    workspace = base / (f"srt-{next(_numbers)}" if level == "srt" else level)
    workspace.mkdir(exist_ok=True)
    fill(workspace)
    fill_outside(base)
    kernel = open_kernel(level, workspace, targets)
    result = execute(kernel, f"%cd -q {workspace}\nT = {targets!r}\n{program}", timeout=PATIENCE)
    return "THROUGH" in result.text.split(), execute(kernel, "1 + 1", timeout=PATIENCE).return_value == "2"


def open_kernel(level: str, workspace: Path, targets: dict[str, Any]) -> KernelRecord:
    """Opens a kernel; a new sandbox each time, because its rules are for what there is when it starts."""
    if level == "none":
        return get_or_create("none", cwd=workspace)
    destroy(level)
    files = {"denyRead": [".env", "app/.env", targets["secret"], targets["denied"]], "allowWrite": ["."]}
    return get_or_create(
        level, cwd=workspace, sandbox={"filesystem": files}, sandbox_level="srt" if level == "srt" else "native"
    )


def fill(workspace: Path) -> None:
    """Makes the files of a workspace, where an attack has changed them."""
    subprocess.run(["rm", "-rf", *map(str, workspace.glob("*")), *map(str, workspace.glob(".[!.]*"))], check=True)
    for folder in (".git/hooks", "sub/repo/.git/hooks", ".vscode", "app"):
        (workspace / folder).mkdir(parents=True)
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for folder in (".git/objects", ".git/refs"):
        (workspace / folder).mkdir()
    for name in ("modules/libs/inner/hooks/x", "modules/libs/inner/modules/deep/config", "worktrees/other/commondir"):
        (workspace / ".git" / name).parent.mkdir(parents=True)
        (workspace / ".git" / name).touch()
    for name, text in ((".env", "secret"), ("app/.env", "secret"), (".git/config", "[core]\n"), (".mcp.json", "{}")):
        (workspace / name).write_text(text)


def fill_outside(base: Path) -> None:
    for name in ("secret", "outside/file", "outside/spare", "denied/key"):
        (base / name).parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            (base / name).parent.chmod(0o755)
        (base / name).write_text("secret")
    for name in (".bash_profile", ".ssh", ".ipython/x", ".local/lib/x", ".config/systemd/u"):
        subprocess.run(["rm", "-rf", str(base / "user" / name)], check=True)
    for name in ("new", "made", "fifo", "moved", "raced", "linked"):
        subprocess.run(["rm", "-rf", str(base / "outside" / name)], check=True)


def put_up(base: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Starts the servers and processes that are attacked; returns where they are."""
    for name in ("none", "native", "neighbour"):
        (base / name).mkdir()
    fill(base / "native")
    fill_outside(base)
    os.environ.update(HOST_SECRET="secret", KERNELBOX_HOME=str(base / "home"), KERNELBOX_KEY_FILE=str(base / "key"))
    stack.callback(wipe)
    neighbour = get_or_create(
        "neighbour",
        cwd=base / "neighbour",
        env={**os.environ, **{f"VARIABLE_{n}": f"NEIGHBOUR_SECRET_{os.urandom(8).hex()}" for n in range(40)}},
    )
    get_or_create("none", cwd=base / "none")
    victim = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", "x = 'VICTIM_' * 1000\ninput()"],
            stdin=subprocess.PIPE,
            env={**os.environ, "VICTIM_SECRET": "secret"},
            cwd=base,
        )
    )
    stack.callback(victim.kill)
    around = put_up_srt(base, stack)
    runtime = base / "home" / "runtime"
    directory = Path(status("neighbour").connection_file).parent
    shm = Path(f"/dev/shm/kernelbox-attack-{os.getpid()}")
    tmp = Path(f"/tmp/kernelbox-attack-{os.getpid()}")  # the name that attacks look for
    for path in (shm, tmp):
        path.write_text("secret")
        stack.callback(path.unlink)
    disk = next((path for path in Path("/dev").glob("[vsn][dv]*") if path.is_block_device()), Path("/dev/null"))
    sysv = 0x6B620000 | (os.getpid() & 0xFFFF)
    queue = f"/kernelbox-attack-{os.getpid()}"
    put_up_queues(sysv, queue, stack)
    found = servers(base, stack)
    os.mkfifo(base / "outside" / "pipe")
    stack.callback(os.close, os.open(base / "outside" / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    return {
        **found,
        **around,
        "srt_port": around["srt_port"] or found["tcp"],
        "secret": str(base / "secret"),
        "denied": str(base / "denied"),
        "foreign": str(base / "foreign"),
        "outside": str(base / "outside"),
        "mounted": str(base / "mounted"),
        "twin": str(base / "twin"),
        "file": str(base / "outside" / "file"),
        "spare": str(base / "outside" / "spare"),
        "in_tmp": str(tmp),
        "in_shm": str(shm),
        "sysv": sysv,
        "queue": queue,
        "pipe": str(base / "outside" / "pipe"),
        "proc": str(base / "proc"),
        "victim": victim.pid,
        "neighbour": neighbour.pid,
        "runtime": str(runtime),
        "key": str(base / "key"),
        "record": neighbour.connection_file,
        "socket": str(directory / "socket"),
        "template": next(str(path) for path in runtime.glob("template-*") if path.is_socket()),
        "template_pid": parent_of(neighbour.pid),
        "setuid": str(base / "setuid"),
        "other_uid": 12345,
        "disk": str(disk),
        "disk_number": disk.stat().st_rdev,
        "cgroup": next((str(path) for path in Path("/sys/fs/cgroup").glob("*/") if path.is_dir()), "/sys/fs/cgroup"),
    }


def put_up_queues(sysv: int, queue: str, stack: contextlib.ExitStack) -> None:
    """Makes a shared memory, a queue and semaphores of System V, and a queue of POSIX."""
    libc = ctypes.CDLL(None)
    for made, remove in (
        (libc.shmget(sysv, 4096, 0o1600), lambda made: libc.shmctl(made, 0, None)),
        (libc.msgget(sysv, 0o1600), lambda made: libc.msgctl(made, 0, None)),
        (libc.semget(sysv, 1, 0o1600), lambda made: libc.semctl(made, 0, 0)),
        (libc.mq_open(queue.encode(), os.O_CREAT | os.O_RDWR, 0o600, None), os.close),
    ):
        assert made >= 0
        stack.callback(remove, made)
    stack.callback(libc.mq_unlink, queue.encode())


def put_up_srt(base: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Starts a kernel in srt, whose processes outside are attacked; where there is none, something in their place."""
    if "srt" not in LEVELS:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelbox-srt-", dir="/tmp")))
        (place / "settings.json").write_text('{"network": {}}')
        return {"srt_place": str(place), "srt": os.getpid(), "deputy": os.getppid(), "srt_port": None}
    (base / "lasting").mkdir()
    pid = get_or_create("lasting", cwd=base / "lasting", sandbox=True, sandbox_level="srt").pid
    while b"--settings" not in (arguments := Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))[:4]:
        pid = parent_of(pid)
    settings = Path(os.fsdecode(arguments[arguments.index(b"--settings") + 1]))
    port = execute("lasting", "import os; print(os.environ['CLAUDE_CODE_HOST_HTTP_PROXY_PORT'])").text
    return {"srt_place": str(settings.parent), "srt": pid, "deputy": parent_of(pid), "srt_port": int(port)}


def parent_of(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def servers(base: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    def listen(family: int, kind: int, address: Any) -> socket.socket:
        server = stack.enter_context(socket.socket(family, kind))
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        threading.Thread(target=serve, args=(server, kind), daemon=True).start()
        return server

    found: dict[str, Any] = {"abstract": f"\0kernelbox-attack-{os.getpid()}", "address": own_address()}
    found["tcp"] = listen(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)).getsockname()[1]  # all
    found["tcp6"] = listen(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)).getsockname()[1]
    found["udp"] = listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)).getsockname()[1]
    found["unix"], found["dgram"] = str(base / "outside" / "stream"), str(base / "outside" / "dgram")
    (base / "outside").mkdir(exist_ok=True)
    listen(socket.AF_UNIX, socket.SOCK_STREAM, found["unix"])
    listen(socket.AF_UNIX, socket.SOCK_DGRAM, found["dgram"])
    listen(socket.AF_UNIX, socket.SOCK_STREAM, found["abstract"])
    return found


def serve(server: socket.socket, kind: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            if kind == socket.SOCK_DGRAM:
                _, address = server.recvfrom(16)
                if address:
                    server.sendto(b"heard", address)
            else:
                client, _ = server.accept()
                with client:
                    client.recv(16)
                    client.send(b"heard")


def own_address() -> str:
    """Returns an address of this machine that is not loopback's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
