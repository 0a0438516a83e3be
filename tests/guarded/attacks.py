"""Attacks of a cell on the guard: each tries to have a program run that no one has approved.

`T` has what `stage.py` has put up. An attack got through if the file T['made'] is there afterwards, which only the program
that it tried to start makes, or if it printed THROUGH. What it asks for is accepted only if it is in `accepts`, word for
word. `proves` says that it gets through in a kernel without the guard.
"""

# ruff: noqa: E501  # code of cells, a statement on a line
from __future__ import annotations

from dataclasses import dataclass

PROLOGUE = r"""
import ctypes, fcntl, gc, json, mmap, os, resource, signal, socket, struct, sys, termios, threading, time
libc = ctypes.CDLL(None, use_errno=True)
PROGRAM, TOUCH = T['program'].encode(), f"touch {T['made']}".encode()
X86 = os.uname().machine == 'x86_64'
def c(name, *args):
    # past Python's own guard, which sees the names that ctypes looks up, but for this one
    libc.dlsym.restype = ctypes.c_void_p
    address = libc.dlsym(None, name)
    return ctypes.CFUNCTYPE(ctypes.c_long, use_errno=True)(address)(*args)
def call(x86, arm, *args):
    made = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = c(b'syscall', ctypes.c_long(x86 if X86 else arm), *made)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def strings(*items):
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)
def in_a_fork(run):
    pid = os.fork()
    if pid == 0:
        try: run()
        finally: os._exit(9)
    return os.waitpid(pid, 0)[1]
def kernel(): return get_ipython().kernel
def runner():
    return next((pid for pid in children(os.getpid()) if pid == getattr(kernel()._identity, 'runner_pid', 0)), None)
def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as file: return list(map(int, file.read().split()))
def below(pid):
    for child in children(pid):
        yield child
        yield from below(child)
def others():
    pids = [T['host'], *below(runner() or os.getpid()), *([runner()] if runner() else [])]
    return [pid for pid in pids if os.path.exists(f'/proc/{pid}')]  # a sandboxed kernel does not see the host
def approved(code, wait=None):
    threading.Thread(target=get_ipython().system, args=(code,), daemon=True).start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for pid in below(runner() or os.getpid()):
            try:
                with open(f'/proc/{pid}/comm') as file:
                    if file.read().strip() == (wait or code.split()[0]): return pid
            except OSError: continue
        time.sleep(0.01)
def fails(act, *args):
    try: act(*args)
    except (OSError, RuntimeError, ValueError): return True
    print('THROUGH', getattr(act, '__name__', act), args)
"""


@dataclass(frozen=True)
class Attack:
    """One attack: the code of a cell."""

    name: str
    code: str
    accepts: tuple[str, ...] = ()
    proves: bool = True


# Sends the runner an errand past all that kernelbox's own code does: `change` has it as a list, field by field.
ERRAND = """
from kernelbox.guest.programs import _runner_link, _program_request, _program
import dataclasses
taken = []
original = _program_request.ProgramRequest.encode
def keep(self):
    taken.append(self)
    return original(self)
_program_request.ProgramRequest.encode = keep
def send(errand, kind='start', outputs=(1, 2)):
    fd = os.memfd_create('errand')
    os.write(fd, original(errand))
    what = ['start', True, True] if kind == 'start' else [kind]
    answers = _runner_link._link.ask(what, (fd, *outputs))
    said = _runner_link.receive(answers)
    if said[0] == 'started': _runner_link.receive(answers)
    print(said)
def change(**fields): return dataclasses.replace(taken[-1], **fields)
"""

# Ends the bash that waits, by an approved command, and makes cells for the next.
KILL_BASH = """
def kill_bash():
    for pid in below(runner()):
        with open(f'/proc/{pid}/comm') as file:
            if file.read().strip() == 'bash': open('pid', 'w').write(str(pid))
    get_ipython().system('kill -9 $(cat pid)')
    deadline = time.monotonic() + 20
    while os.path.exists('/proc/' + open('pid').read()) and time.monotonic() < deadline: time.sleep(0.01)
def bash_cell(code, look=False):
    there = kernel().bash.look()[1] if look else None
    return _program.bash_program(code, kernel_environment(), there or os.getcwdb())
"""

C = r"""
#include <unistd.h>
#include <stdlib.h>
#include <sys/wait.h>
__attribute__((constructor)) static void begin(void) {
    char *argv[] = {"/bin/sh", "-c", COMMAND, 0}, *env[] = {"PATH=/usr/bin:/bin", 0};
    pid_t pid = fork();
    if (pid == 0) { execve(argv[0], argv, env); _exit(1); }
    waitpid(pid, 0, 0);
    if (system(COMMAND)) {}
}
"""

ATTACKS = (
    # -- functions of the C library, and system calls
    Attack("ctypes: system", "c(b'system', TOUCH)"),
    Attack("ctypes: popen", "stream = c(b'popen', TOUCH, b'r')\nif stream: c(b'pclose', ctypes.c_void_p(stream))"),
    Attack("ctypes: wordexp", "c(b'wordexp', b'$(' + TOUCH + b')', ctypes.create_string_buffer(1000), 0)"),
    Attack("ctypes: execve in a fork", "in_a_fork(lambda: c(b'execve', PROGRAM, strings(PROGRAM), strings()))"),
    Attack("ctypes: execvp in a fork", "in_a_fork(lambda: c(b'execvp', b'sh', strings(b'sh', b'-c', TOUCH)))"),
    Attack(
        "ctypes: execve in a vfork",
        "in_a_fork(lambda: c(b'syscall', 58) or c(b'execve', PROGRAM, strings(PROGRAM), strings())) if X86 else"
        " in_a_fork(lambda: c(b'execve', PROGRAM, strings(PROGRAM), strings()))",
    ),
    Attack(
        "ctypes: posix_spawn",
        "pid = ctypes.c_int()\nc(b'posix_spawn', ctypes.byref(pid), PROGRAM, None, None, strings(PROGRAM), strings())\n"
        "pid.value and os.waitpid(pid.value, 0)",
    ),
    Attack("execve by its number", "in_a_fork(lambda: call(59, 221, PROGRAM, strings(PROGRAM), strings()))"),
    Attack(
        "execveat by its number",
        "in_a_fork(lambda: call(322, 281, -100, PROGRAM, strings(PROGRAM), strings(), 0))",
    ),
    Attack(
        "execveat of a memfd",
        "fd = os.memfd_create('x', 0)\nos.write(fd, open('/usr/bin/touch', 'rb').read())\n"
        "in_a_fork(lambda: call(322, 281, fd, b'', strings(b'touch', T['made'].encode()), strings(), 0x1000))",
    ),
    Attack(
        "fexecve of a memfd",
        "fd = os.memfd_create('x', 0)\nos.write(fd, open('/usr/bin/touch', 'rb').read())\n"
        "in_a_fork(lambda: c(b'fexecve', fd, strings(b'touch', T['made'].encode()), strings()))",
    ),
    Attack(
        "execve by the number of x32",
        "in_a_fork(lambda: call(59 | 0x40000000, 221, PROGRAM, strings(PROGRAM), strings()))\n"
        "in_a_fork(lambda: call(520 | 0x40000000, 221, PROGRAM, strings(PROGRAM), strings()))",
        proves=False,
    ),
    Attack(
        "execve of 32-bit programs, by machine code",
        "code = bytes.fromhex('b80b000000 bb00000000 31c9 31d2 cd80 c3')\n"
        "low = c(b'mmap', ctypes.c_void_p(0x10000000), 4096, 7, 0x32, -1, 0)\n"
        "ctypes.memmove(0x10000800, PROGRAM + bytes(1), len(PROGRAM) + 1)\n"
        "ctypes.memmove(0x10000000, code[:6] + struct.pack('I', 0x10000800) + code[10:], len(code))\n"
        "if X86: in_a_fork(ctypes.CFUNCTYPE(None)(0x10000000))",
        proves=False,
    ),
    Attack(
        "execve in a thread and in a process that shares the memory",
        "done = threading.Thread(target=lambda: in_a_fork(lambda: call(59, 221, PROGRAM, strings(PROGRAM), strings())))\n"
        "done.start(); done.join()",
    ),
    Attack(
        "another filter that allows all",
        "program = struct.pack('HBBI', 6, 0, 0, 0x7fff0000); buffer = ctypes.create_string_buffer(program)\n"
        "filters = struct.pack('HxxxxxxP', 1, ctypes.addressof(buffer))\n"
        "c(b'prctl', 38, 1, 0, 0, 0); c(b'prctl', 22, 2, ctypes.create_string_buffer(filters))\n"
        "c(b'prctl', 22, 0); c(b'prctl', 21)\nc(b'system', TOUCH)",
    ),
    Attack("io_uring", "fails(call, 425, 425, 8, ctypes.create_string_buffer(120))", proves=False),
    # -- ways inside of Python
    Attack("subprocess", "import subprocess\nsubprocess.run(TOUCH, shell=True)"),
    Attack(
        "_posixsubprocess, as the interpreter keeps it",
        "import _posixsubprocess\nfound = [f for f in gc.get_objects() if getattr(f, '__name__', '') == 'fork_exec']\n"
        "import importlib.machinery, _imp\n"
        "found.append(getattr(_posixsubprocess, 'fork_exec'))\n"
        "r, w = os.pipe()\n"
        "for f in found:\n"
        "    try: f([PROGRAM], [PROGRAM], True, (), None, None, -1, -1, -1, -1, -1, -1, r, w, False, False, -1,"
        " None, None, None, -1, None, False)\n"
        "    except BaseException as error: print(error)\n"
        "time.sleep(0.5)",
        proves=False,
    ),
    Attack(
        "a sub-interpreter",
        "api = ctypes.pythonapi\n"
        "for name in ('PyThreadState_Get', 'Py_NewInterpreter', 'PyThreadState_Swap'):"
        " getattr(api, name).restype = ctypes.c_void_p\n"
        "def run():\n"
        "    api.Py_NewInterpreter()\n"
        "    api.PyRun_SimpleString(b'import os; os.system(\"' + TOUCH + b'\")')\n"
        "in_a_fork(run)",
    ),
    Attack(
        "an interpreter that is started anew in a fork",
        "in_a_fork(lambda: ctypes.pythonapi.Py_BytesMain(3, strings(b'python', b'-c', b'import os; os.system(\"' + TOUCH + b'\")')))",
        proves=False,
    ),
    Attack("a library that is loaded", "ctypes.CDLL(T['library'])"),
    Attack("a library that is loaded in a fork", "in_a_fork(lambda: ctypes.CDLL(T['library']))"),
    Attack(
        "a module that is loaded",
        "import importlib.machinery\nimportlib.machinery.ExtensionFileLoader('x', T['library']).create_module(importlib.machinery.ModuleSpec('x', None, origin=T['library']))",
    ),
    Attack(
        "multiprocessing by spawn",
        "import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=os.system, args=(TOUCH,)).start()",
        proves=False,
    ),
    # -- other processes
    Attack("ptrace", "for pid in others(): fails(call, 101, 117, 16, pid, 0, 0)\n", proves=False),
    Attack("ptrace by seizing", "for pid in others(): fails(call, 101, 117, 0x4206, pid, 0, 0)\n", proves=False),
    Attack(
        "process_vm_writev and readv",
        "local = ctypes.create_string_buffer(8); vector = struct.pack('PP', ctypes.addressof(local), 8)\n"
        "for pid in others():\n"
        "    for number in ((310, 270), (311, 271)):"
        " fails(call, *number, pid, ctypes.create_string_buffer(vector), 1, ctypes.create_string_buffer(vector), 1, 0)",
        proves=False,
    ),
    Attack(
        "the memory, descriptors and environment in /proc",
        "for pid in others():\n"
        "    for name in ('mem', 'environ', 'maps', 'fd/0', 'cwd/x', 'root/etc/passwd', 'exe', 'map_files', 'auxv', 'pagemap', 'syscall', 'stack', 'fdinfo'):\n"
        "        fails(lambda path: os.listdir(path) if path.endswith(('map_files', 'fdinfo')) else open(path, 'rb').read(1), f'/proc/{pid}/{name}')\n"
        "    for name in ('mem', 'fd/0', 'fd/1', 'clear_refs'):\n"
        "        fails(lambda path: open(path, 'r+b'), f'/proc/{pid}/{name}')",
        proves=False,
    ),
    Attack(
        "an approved command's memory and input",
        "pid = approved('sleep 5')\nassert pid\n"
        "for name in ('mem', 'fd/0', 'fd/1', 'fd/2', 'environ', 'exe', 'maps'):\n"
        "    fails(lambda path: open(path, 'rb').read(1), f'/proc/{pid}/{name}')\n"
        "    fails(lambda path: open(path, 'wb'), f'/proc/{pid}/{name}')\n"
        "fails(call, 101, 117, 16, pid, 0, 0); fails(call, 101, 117, 0x4206, pid, 0, 0)\n"
        "fd = os.pidfd_open(pid); fails(call, 438, 438, fd, 0, 0)\n"
        "fails(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)))",
        accepts=("sleep 5",),
        proves=False,
    ),
    Attack(
        "descriptors of others by pidfd_getfd",
        "for pid in others(): fails(call, 438, 438, os.pidfd_open(pid), 0, 0)",
        proves=False,
    ),
    Attack(
        "signals to the runner, the host and approved commands",
        "pid = approved('sleep 5')\n"
        "for pid in (pid, *others()):\n"
        "    fails(os.kill, pid, 0); fails(os.kill, pid, signal.SIGINT); fails(signal.pidfd_send_signal, os.pidfd_open(pid), 0)\n"
        "    fails(call, 234, 131, pid, pid, signal.SIGINT)",
        accepts=("sleep 5",),
        proves=False,
    ),
    Attack("limits of the runner", "fails(resource.prlimit, runner() or 1, resource.RLIMIT_CPU, (1, 1))", proves=False),
    Attack("namespaces", "fails(call, 272, 97, 0x10000000); fails(call, 272, 97, 0x20000)", proves=False),
    Attack("the runner's session", "fails(os.setpgid, runner() or 1, os.getpgrp())", proves=False),
    # -- programs that the system or others start
    Attack(
        "programs that the system starts for the superuser",
        "for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/modprobe', '/proc/sys/kernel/poweroff_cmd',"
        " '/sys/kernel/uevent_helper', '/proc/self/root/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger'):\n"
        "    fails(lambda path: open(path, 'r+b').close() if os.path.exists(path) else os.stat(path), path)",
        proves=False,
    ),
    Attack(
        "keys and modules",
        "fails(call, 249, 218, b'user', b'x', b'y', 0); fails(call, 313, 273, 0, b'', 0); fails(call, 321, 280, 0, None, 0)",
        proves=False,
    ),
    Attack(
        "code for another kernel and a process of the template",
        "import glob\nmade = []\n"
        "for path in [*glob.glob(T['runtime'] + '/*/socket'), *glob.glob(T['runtime'] + '/*/runner'), *glob.glob(T['runtime'] + '/template-*')]:\n"
        "    fd = c(b'socket', 1, 1, 0)\n"
        "    address = struct.pack('H', 1) + path.encode() + bytes(1)\n"
        "    if fd >= 0 and c(b'connect', fd, address, len(address)) == 0: print('THROUGH', path)\n"
        "for kind in (2, 2 | 0o2000000):\n"
        "    pair = (ctypes.c_int * 2)()\n"
        "    if c(b'socketpair', 1, kind, 0, pair) == 0: print('THROUGH a pair that can be connected')\n"
        "for family in (1, 16, 40, 38, 17):\n"
        "    fails(lambda: call(41, 198, family, 3, 15 if family == 16 else 0))",
        proves=False,
    ),
    # -- the runner
    Attack(
        "an errand without, with a forged and with an empty seal",
        ERRAND + "program = _program.shell_program(TOUCH.decode(), kernel_environment(), b'/bin/sh', os.getcwdb())\n"
        "for seal in ('', '0' * 64, 'x'):\n"
        "    send(_program_request.ProgramRequest.of(dataclasses.replace(program, approval=_program.Approval('x', 1, seal))))\n"
        "    send(_program_request.ProgramRequest.of(dataclasses.replace(program, kind='bash', approval=_program.Approval('x', 1, seal))), 'bash')\n",
        proves=False,
    ),
    Attack(
        "a seal that is used twice, at once and later",
        ERRAND + "get_ipython().system('echo x >> counted')\n"
        "for _ in range(3): send(taken[-1])\n"
        "in_a_fork(lambda: send(taken[-1]))\n"
        "ways = [threading.Thread(target=send, args=(taken[-1],)) for _ in range(4)]\n"
        "[way.start() for way in ways]; [way.join() for way in ways]\n"
        "print('THROUGH' if len(open('counted').readlines()) != 1 else 'once')",
        accepts=("echo x >> counted",),
        proves=False,
    ),
    Attack(
        "a seal for another command, environment, directory or kind",
        ERRAND + "get_ipython().system('true')\n"
        "made = T['made']\n"
        "open('env.sh', 'w').write(TOUCH.decode()); os.makedirs('bin', exist_ok=True)\n"
        "for name in ('true', 'bash', 'sh'):\n"
        "    open(f'bin/{name}', 'w').write('#!/bin/sh\\n' + TOUCH.decode()); os.chmod(f'bin/{name}', 0o755)\n"
        "here, now = os.getcwd(), taken[-1].environment\n"
        "send(change(command=TOUCH.decode())); send(change(words=['sh', '-c', TOUCH.decode()]))\n"
        "for pair in (['BASH_ENV', here + '/env.sh'], ['ENV', here + '/env.sh'], ['LD_PRELOAD', T['library']], ['PATH', here + '/bin'], ['SHELL', here + '/bin/sh'], ['BASH_FUNC_true%%', '() { ' + TOUCH.decode() + '; }']):\n"
        "    others = [each for each in now if each[0] != pair[0]]\n"
        "    send(change(environment=[*others, pair])); send(change(environment=[pair, *now])); send(change(environment=[*now, pair]))\n"
        "send(change(directory=here + '/bin'))\n"
        "send(change(kind='script', line=T['program'], words=[T['program']])); send(change(kind='bash'), 'bash')\n"
        "send(change(execution_id='y')); send(change(number=5))",
        accepts=("true",),
        proves=False,
    ),
    Attack(
        "what the kernel takes for given",
        "from kernelbox.guest.programs import _command_environment\n"
        "open('env.sh', 'w').write(TOUCH.decode()); os.makedirs('bin', exist_ok=True)\n"
        "open('bin/sh', 'w').write('#!/bin/sh\\n' + TOUCH.decode()); os.chmod('bin/sh', 0o755)\n"
        "open('bin/hello', 'w').write('#!/bin/sh\\n' + TOUCH.decode()); os.chmod('bin/hello', 0o755)\n"
        "given = _command_environment._given_environment\n"
        "for name, value in ((b'BASH_ENV', b'env.sh'), (b'LD_PRELOAD', T['library'].encode()), (b'SHELL', os.getcwdb() + b'/bin/sh'), (b'PATH', os.getcwdb() + b'/bin')):\n"
        "    before = given.get(name); given[name] = value; os.environb[name] = value\n"
        "    for run in (lambda: get_ipython().system('hello'), lambda: get_ipython().run_cell_magic('bash', '', 'true')):\n"
        "        try: run()\n"
        "        except BaseException as error: print(type(error).__name__)\n"
        "    os.environb.pop(name); given.pop(name)\n"
        "    if before is not None: given[name] = os.environb[name] = before\n"
        "os.chdir('bin'); _command_environment._given_directory = os.getcwdb()\n"
        "try: get_ipython().system('./hello')\n"
        "except BaseException as error: print(type(error).__name__)",
        accepts=("hello", "true\n", "./hello"),
        proves=False,
    ),
    Attack(
        "variables that cells have set",
        "open('env.sh', 'w').write(TOUCH.decode()); os.makedirs('bin', exist_ok=True)\n"
        "open('bin/bash', 'w').write('#!/bin/sh\\n' + TOUCH.decode()); os.chmod('bin/bash', 0o755)\n"
        "for name, value in (('BASH_ENV', 'env.sh'), ('LD_PRELOAD', T['library']), ('SHELL', os.getcwd() + '/bin/bash'), ('PATH', os.getcwd() + '/bin'), ('BASH_FUNC_true%%', '() { ' + TOUCH.decode() + '; }')):\n"
        "    os.environ[name] = value\n"
        "    try: get_ipython().run_cell_magic('bash', '', 'true')\n"
        "    except BaseException as error: print(type(error).__name__)\n"
        "    del os.environ[name]\n"
        "libc.setenv(b'BASH_ENV', b'env.sh', 1); libc.setenv(b'LD_PRELOAD', T['library'].encode(), 1)\n"
        "os.environ['PATH'] = '/usr/bin:/bin'; get_ipython().system('true')",
        accepts=("true\n", "true"),
        proves=False,
    ),
    Attack(
        "an errand that changes while it is read",
        ERRAND + "evil = TOUCH.decode()\n"
        "def hold_back(self):\n"
        "    taken.append(self)\n"
        "    raise KeyError\n"
        "_program_request.ProgramRequest.encode = hold_back\n"
        "try: get_ipython().system('true')\n"
        "except KeyError: pass\n"
        "fd = os.memfd_create('errand'); good, bad = original(taken[-1]), original(change(command=evil))\n"
        "os.write(fd, good.ljust(len(bad)))\n"
        "def flip():\n"
        "    while not stop: os.pwrite(fd, bad, 0); os.pwrite(fd, good.ljust(len(bad)), 0)\n"
        "stop = False\nthread = threading.Thread(target=flip); thread.start()\n"
        "for _ in range(300): print(_runner_link.receive(_runner_link._link.ask(['start', True, True], (fd, 1, 2)))[0], end=' ')\n"
        "stop = True; thread.join()",
        accepts=("true",),
        proves=False,
    ),
    Attack(
        "an output that can be read",
        "ours, theirs = socket.socketpair()\nours.send(TOUCH + b'\\n')\nsaved = os.dup(1), os.dup(2)\n"
        "try:\n"
        "    os.dup2(theirs.fileno(), 1); os.dup2(theirs.fileno(), 2)\n"
        "    try: get_ipython().system('sh <&2')\n"
        "    finally: [os.dup2(fd, n + 1) for n, fd in enumerate(saved)]\n"
        "except BaseException as error: print(type(error).__name__, error)",
        accepts=("sh <&2",),
    ),
    Attack(
        "a terminal for the session",
        "main, end = os.openpty()\n"
        "os.write(main, TOUCH + b'\\n')\n"
        "try: fcntl.ioctl(end, termios.TIOCSCTTY, 0)\n"
        "except OSError as error: print(error)\n"
        "get_ipython().system('sh </dev/tty')",
        accepts=("sh </dev/tty",),
        proves=False,
    ),
    Attack(
        "the input of the bash that waits",
        "bash = [pid for pid in below(os.getpid())]\n"
        "print(bash)\n"
        "for pid in bash:\n"
        "    for number in range(3):\n"
        "        try:\n"
        "            fd = os.open(f'/proc/{pid}/fd/{number}', os.O_WRONLY)\n"
        "            os.write(fd, TOUCH + b'\\n')\n"
        "        except OSError as error: print(error)\n"
        "time.sleep(0.5)",
        proves=False,
    ),
    Attack(
        "all that the runner does not understand",
        "from kernelbox.guest.programs import _runner_link\n"
        "link = _runner_link._link\n"
        "for data in (b'', b'{', b'[]', b'[\"start\"]', b'[\"start\", true, true]', b'[\"bash\"]', b'[\"kill\", \"x\"]', b'[\"look\"]', b'[' * 3000, b'x' * 4000, b'[\"interrupt\"]'):\n"
        "    for fds in ((), (0,), (1, 1), (0, 1, 2), (0, 1, 2, 3, 4, 5)):\n"
        "        raw = b''.join(fd.to_bytes(4, 'little') for fd in fds)\n"
        "        if data: link.channel.sendmsg([data], [(1, 1, raw)] if raw else [])\n"
        "fifo = os.pipe()\n"
        "print(_runner_link.receive(link.ask(['start', True, True], (fifo[0], 1, 2))))\n"
        "big = os.memfd_create('big'); os.ftruncate(big, 1 << 40)\n"
        "print(_runner_link.receive(link.ask(['start', True, True], (big, 1, 2))))\n"
        "get_ipython().system('echo goes on')",
        accepts=("echo goes on",),
        proves=False,
    ),
    Attack(
        "an answer of its own",
        "from kernelbox.wire._messages import Answer\nfrom kernelbox.wire._questions import fingerprint\n"
        "asks, outbox = kernel().asks, kernel().outbox\n"
        "from kernelbox.guest.serve import _asks\n"
        "read = _asks._Question.read_answer\n"
        "def answer():\n"
        "    while not asks.open: time.sleep(0.001)\n"
        "    ((number, (peer, put)),) = asks.open.items()\n"
        "    put(Answer(outbox.execution_id, number, True, seal='0' * 64))\n"
        "_asks._Question.read_answer = lambda self: b''\n"
        "threading.Thread(target=answer).start()\n"
        "try: get_ipython().system(TOUCH.decode())\n"
        "except BaseException as error: print(type(error).__name__, error)",
    ),
    Attack(
        "another environment for a bash that has ended since it was asked for",
        ERRAND + KILL_BASH + "ok = get_ipython().approve('shell', bash_cell('true', look=True), with_changes=False)\n"
        "kill_bash()\n"
        "for pair in (['LD_PRELOAD', T['library']], ['PROMPT_COMMAND', TOUCH.decode()]):\n"
        "    errand = _program_request.ProgramRequest.of(ok)\n"
        "    send(dataclasses.replace(errand, environment=[*errand.environment, pair]), 'bash')",
        accepts=("true", "kill -9 $(cat pid)"),
        proves=False,
    ),
    Attack(
        "a cell in the directory that a bash cell before it goes to",
        ERRAND + KILL_BASH + "kill_bash()\nos.makedirs('bin', exist_ok=True)\n"
        "open('bin/hello', 'w').write('#!/bin/sh\\n' + TOUCH.decode()); os.chmod('bin/hello', 0o755)\n"
        "first, second = (_program_request.ProgramRequest.of(get_ipython().approve('shell', bash_cell(code))) for code in ('cd bin; sleep 1', './hello'))\n"
        "way = threading.Thread(target=send, args=(first, 'bash')); way.start(); time.sleep(0.5)\n"
        "send(second, 'bash'); way.join(); send(second, 'bash')",
        accepts=("cd bin; sleep 1", "./hello", "kill -9 $(cat pid)"),
        proves=False,
    ),
    Attack(
        "a terminal in the place of the outputs",
        "main, end = os.openpty()\nway = os.open(os.ttyname(end), os.O_WRONLY | os.O_NOCTTY)\nsaved = os.dup(1), os.dup(2)\n"
        "try:\n"
        "    os.dup2(way, 1); os.dup2(way, 2)\n"
        "    try: get_ipython().system('test -t 2 && ./program')\n"
        "    finally: [os.dup2(fd, n + 1) for n, fd in enumerate(saved)]\n"
        "except BaseException as error: print(type(error).__name__, error)",
        accepts=("test -t 2 && ./program",),
    ),
    Attack(
        "words for a command that are no signals",
        "approved('sleep 5')\n"
        "controls = [each._control for each in gc.get_objects() if type(each).__name__ == 'Delegated']\n"
        "print(len(controls))\n"
        "for word in (b'[9999, true]', b'[-1, false]', b'[[], false]', b'[{}, 1]', b'7', b'\\xff', b'[' * 60, b''):\n"
        "    for control in controls:\n"
        "        try: control.send(word)\n"
        "        except OSError as error: print(error)\n"
        "time.sleep(0.5)",
        accepts=("sleep 5",),
        proves=False,
    ),
    Attack(
        "a message of nothing to the runner",
        "from kernelbox.guest.programs import _runner_link\nfor _ in range(3): _runner_link._link.channel.send(b'')\ntime.sleep(0.5)",
        proves=False,
    ),
    Attack(
        "a program that is not there, and one that is none",
        "open('none', 'w').write('x'); os.chmod('none', 0o755)\n"
        "for name in ('/no/such/program', './none', '/etc', '/dev/null'):\n"
        "    try: get_ipython().run_cell_magic('script', name, 'x')\n"
        "    except BaseException as error: print(type(error).__name__, error)",
        accepts=("x\n",),
        proves=False,
    ),
    Attack(
        "errands of other kinds",
        ERRAND + "program = _program.shell_program(TOUCH.decode(), kernel_environment(), b'/bin/sh', os.getcwdb())\n"
        "good = json.loads(original(_program_request.ProgramRequest.of(dataclasses.replace(program, approval=_program.Approval('x', 1, '0' * 64)))))\n"
        "for place in range(len(good)):\n"
        "    for wrong in (None, 7, [], {}, [[]], [['a']], 'x\\0y', '\\ud800', '../..', '', [1, [2]]):\n"
        "        fd = os.memfd_create('errand'); os.write(fd, json.dumps([*good[:place], wrong, *good[place + 1:]]).encode())\n"
        "        said = _runner_link.receive(_runner_link._link.ask(['start', True, True], (fd, 1, 2)))\n"
        "        if said[0] == 'started': print('THROUGH', place, wrong)\n"
        "        os.close(fd)\n"
        "for data in (b'[' * 200000, b'{}', b'\\xff', b'[]', b'null', b'[1, 2, 3, 4, 5, 6, 7, 8, 9]'):\n"
        "    fd = os.memfd_create('errand'); os.write(fd, data)\n"
        "    print(_runner_link.receive(_runner_link._link.ask(['bash'], (fd, 1, 2)))[0])",
        proves=False,
    ),
    Attack(
        "another directory in the place of the one that was shown",
        ERRAND + "here = os.getcwd(); evil = here + '-evil'; os.makedirs(evil, exist_ok=True)\n"
        "open(evil + '/hello', 'w').write(f'#!/bin/sh\\n/usr/bin/touch {evil}/through'); os.chmod(evil + '/hello', 0o755)\n"
        "def swap(self):\n"
        "    os.rename(here, here + '-away'); os.symlink(evil, here)\n"
        "    return original(self)\n"
        "_program_request.ProgramRequest.encode = swap\n"
        "try: get_ipython().system('./hello')\n"
        "except BaseException as error: print(type(error).__name__, error)\n"
        "finally:\n"
        "    _program_request.ProgramRequest.encode = original\n"
        "    if os.path.islink(here): os.unlink(here); os.rename(here + '-away', here); os.chdir(here)\n"
        "if os.path.exists(evil + '/through'): print('THROUGH')\n"
        "import shutil; shutil.rmtree(evil)",
        accepts=("./hello",),
        proves=False,
    ),
    Attack(
        "variables that programs run code by",
        "for name in ('PYTHONSTARTUP', 'PYTHONPATH', 'PERL5OPT', 'PERL5LIB', 'RUBYOPT', 'NODE_OPTIONS', 'GIT_SSH_COMMAND', 'GIT_EXTERNAL_DIFF', 'GIT_CONFIG_COUNT', 'PS4', 'PROMPT_COMMAND', 'IFS', 'LD_AUDIT', 'LD_LIBRARY_PATH', 'GCONV_PATH', 'LESSOPEN', 'MANPAGER', 'EDITOR', 'SHELLOPTS', 'BASHOPTS', 'x', '\\udcff'):\n"
        "    os.environ[name] = 'x'\n"
        "    try: get_ipython().system('true'); print('THROUGH', name)\n"
        "    except BaseException as error: print(type(error).__name__)\n"
        "    del os.environ[name]",
        accepts=("true",),
        proves=False,
    ),
    Attack(
        "a filter that hands the question to a process of its own",
        "import select\n"
        "steps = ((0x20, 0, 0, 0), (0x15, 0, 1, 59 if X86 else 221), (6, 0, 0, 0x7fc00000), (6, 0, 0, 0x7fff0000))\n"
        "buffer = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))\n"
        "filters = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 4, ctypes.addressof(buffer)))\n"
        "def run():\n"
        "    c(b'prctl', 38, 1, 0, 0, 0); fd = call(317, 277, 1, 8, filters)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try: call(59, 221, PROGRAM, strings(PROGRAM), strings())\n"
        "        finally: os._exit(1)\n"
        "    poller = select.poll(); poller.register(fd, select.POLLIN)\n"
        "    while poller.poll(1000):  # the interpreter of the program is started anew\n"
        "        try:\n"
        "            asked = bytearray(80); fcntl.ioctl(fd, 0xc0502100, asked)\n"
        "            fcntl.ioctl(fd, 0xc0182101, struct.pack('QqiI', *struct.unpack_from('Q', asked), 0, 0, 1))\n"
        "        except OSError: break\n"
        "    os.waitpid(child, 0)\n"
        "in_a_fork(run)",
    ),
    Attack(
        "all that can be started, by every way",
        "open('chain', 'w').write('#!' + T['program']); os.chmod('chain', 0o755)\n"
        "loader = next((line.split()[-1] for line in open('/proc/self/maps') if '/ld-' in line), '/lib64/ld-linux-x86-64.so.2').encode()\n"
        "ways = [(PROGRAM,), (b'chain',), (loader, b'/bin/sh', b'-c', TOUCH), (b'/proc/self/exe', b'-c', b'import os; os.system(\"' + TOUCH + b'\")'), (b'/proc/self/cwd/program',)]\n"
        "for words in ways:\n"
        "    in_a_fork(lambda: call(59, 221, words[0], strings(*words), strings()))\n"
        "    in_a_fork(lambda: call(322, 281, os.open(words[0], os.O_PATH), b'', strings(*words), strings(), 0x1000))",
    ),
    Attack(
        "a process beside the kernel",
        "libc.dlsym.restype = ctypes.c_void_p; address = libc.dlsym(None, b'syscall')\n"
        "pid = ctypes.PYFUNCTYPE(ctypes.c_long)(address)(*map(ctypes.c_long, (56 if X86 else 220, 0x8000 | 17, 0, 0, 0, 0)))\n"
        "if pid == 0: os._exit(0)\n"
        "if pid > 0: print('THROUGH')",
        proves=False,
    ),
    Attack(
        "every call that opens other processes or the system",
        "vector = struct.pack('PP', ctypes.addressof(ctypes.create_string_buffer(8)), 8)\n"
        "for pid in others():\n"
        "    fd = os.pidfd_open(pid)\n"
        "    for number, *args in (((440, 440), fd, vector, 1, 4, 0), ((448, 448), fd, 0), ((312, 272), os.getpid(), pid, 0, 0, 0), ((256, 238), pid, 8, None, None), ((279, 239), pid, 0, None, None, None, 0), ((308, 268), fd, 0x10000000), ((298, 241), bytes(120), pid, -1, -1, 0)):\n"
        "        fails(call, *number, *args)\n"
        "for number, *args in (((323, 282), 1), ((154, -1), 0, None, 0), ((134, -1), PROGRAM), ((303, 264), -100, b'/', bytes(136), bytes(4), 0), ((304, 265), -100, bytes(136), 0), ((300, 262), 0, 0), ((426, 426), 0, 0, 0, 0, None, 0), ((427, 427), 0, 0, None, 0), ((250, 219), 0, -3, 0), ((248, 217), b'user', b'x', b'y', 1, -3), ((246, 104), 0, 0, None, 0), ((175, 105), None, 0, b''), ((163, 89), PROGRAM), ((165, 40), b'x', b'/', b'tmpfs', 0, None), ((155, 41), b'/', b'/'), ((430, 430), b'tmpfs', 0), ((435, 435), bytes(64), 64), ((173, -1), 0, 1, 1)):\n"
        "    fails(call, *number, *args)",
        proves=False,
    ),
    Attack(
        "signals by a notice of input",
        "pid = runner()\n"
        "for command, owner in ((fcntl.F_SETOWN, pid), (15, struct.pack('ii', 1, pid or 0))):  # F_SETOWN_EX\n"
        "    end, other = os.pipe()\n"
        "    try:\n"
        "        fcntl.fcntl(end, command, owner); fcntl.fcntl(end, 10, signal.SIGKILL)  # F_SETSIG\n"
        "        fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); os.write(other, b'x')\n"
        "    except OSError as error: print(error)\n"
        "time.sleep(0.5)",
        proves=False,
    ),
    Attack(
        "half of a pair, and its own sockets, led elsewhere",
        "import glob\n"
        "ends = [socket.socketpair(socket.AF_UNIX, kind)[0] for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]\n"
        "fds = [int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}') and 'socket' in os.readlink(f'/proc/self/fd/{fd}')]\n"
        "for path in glob.glob(T['runtime'] + '/*/socket') + glob.glob(T['runtime'] + '/*/runner') + glob.glob(T['runtime'] + '/template-*'):\n"
        "    address = struct.pack('H', 1) + path.encode() + bytes(1)\n"
        "    for fd in fds:\n"
        "        if c(b'connect', fd, address, len(address)) == 0: print('THROUGH', path)\n"
        "for end in ends:\n"
        "    try: end.bind('bound'); end.listen(); print('THROUGH listens')\n"
        "    except OSError as error: print(error)",
        proves=False,
    ),
    Attack(
        "programs that the system starts, where /proc is mounted again",
        "for name in ('kernel/core_pattern', 'kernel/modprobe', 'kernel/poweroff_cmd', 'fs/binfmt_misc/register'):\n"
        "    fails(lambda path: os.close(os.open(path, os.O_WRONLY)), f\"{T['proc']}/sys/{name}\")",
        proves=False,
    ),
    Attack(
        "the memory of others, where /proc is mounted again",
        "for pid in others():\n"
        "    for name in ('mem', 'environ', 'fd/0', 'root/etc/passwd'):\n"
        "        fails(lambda path: open(path, 'rb').read(1), f\"{T['proc']}/{pid}/{name}\")",
        proves=False,
    ),
    Attack(
        "keystrokes for a terminal",
        "main, end = os.openpty()\nfails(fcntl.ioctl, end, termios.TIOCSTI, b'x')\nfails(fcntl.ioctl, end, 0x541C, b'x')",
        proves=False,
    ),
    Attack(
        "descriptors that were left",
        "for fd in os.listdir('/proc/self/fd'):\n"
        "    try: told = os.readlink(f'/proc/self/fd/{fd}')\n"
        "    except OSError: continue\n"
        "    if told.startswith('/') and os.path.isdir(told) and not told.startswith('/proc'): print('THROUGH', told)\n"
        "    if 'pidfd' in told or 'environment' in told or 'filter' in told: print('THROUGH', told)",
        proves=False,
    ),
    Attack(
        "privileges, as the superuser",
        "status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)\n"
        "if any(int(status[name], 16) for name in ('CapPrm', 'CapEff', 'CapAmb')): print('THROUGH')\n"
        "fails(os.setgroups, [0]); fails(os.chroot, '/'); fails(os.mknod, 'device', 0o20600, os.makedev(1, 1)); fails(resource.setrlimit, resource.RLIMIT_CORE, (1 << 20, 1 << 20))",
        proves=False,
    ),
    Attack(
        "words in another process's name",
        "ours, theirs = socket.socketpair()\ntheirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)\n"
        "name = [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', T['host'], os.getuid(), os.getgid()))]\n"
        "fails(ours.sendmsg, [b'x'], name)",
        proves=False,
    ),
)

PROLOGUE += """
def kernel_environment():
    from kernelbox.guest.programs._command_environment import take_environment
    return take_environment()
"""
