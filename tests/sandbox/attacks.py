"""Attacks of a cell on what is outside of its sandbox, each as code that returns something true if it got through.

`T` has the targets that `stage.py` has put up: paths, ports and process ids of the host. Each is also run without a
sandbox, because an attack that fails there as well proves nothing. So all of them must be harmless where they succeed,
also as the superuser: they touch what was put up for them, send signal 0, open and do not write.
"""

from __future__ import annotations

from dataclasses import dataclass

PROLOGUE = """
import base64, ctypes, errno, mmap, os, re, resource, shutil, signal, socket, struct, subprocess, sys, time
from urllib.parse import unquote
libc = ctypes.CDLL(None, use_errno=True)
holding = ctypes.PyDLL(None, use_errno=True)  # holds the interpreter, which a child would wait for in vain
NUMBERS = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
def call(x86, arm, *args, by=libc):
    result = by.syscall((x86, arm)[NUMBERS], *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def connects(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(5)
        client.connect(address)
        client.send(b"hello")
        return client.recv(16) == b"heard"
def in_child(action):
    pid = os.fork()
    if pid == 0:
        try: os._exit(0 if action() else 1)
        finally: os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
def relay(port):
    # to the proxy of srt, where there is one; where not, to what is to be reached through it
    return socket.create_connection(("127.0.0.1", port if not os.environ.get("SANDBOX_RUNTIME") else 3128), 5)
def token():
    return base64.b64encode(unquote(os.environ["HTTP_PROXY"].split("//")[1].split("@")[0]).encode()).decode()
def tunnels(host, port):
    with relay(port) as client:
        if os.environ.get("SANDBOX_RUNTIME"):
            client.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n".encode())
            client.sendall(f"Proxy-Authorization: Basic {token()}\\r\\n\\r\\n".encode())
            if b" 200 " not in client.recv(4096):
                return False
        client.sendall(b"hello")
        return client.recv(16) == b"heard"
def gets(host, port, name=""):
    with relay(port) as client:
        request = f"GET http://{host}:{port}/ HTTP/1.1\\r\\nHost: {name or host}\\r\\n"
        if os.environ.get("SANDBOX_RUNTIME"):
            request += f"Proxy-Authorization: Basic {token()}\\r\\n"
        client.sendall(f"{request}\\r\\n".encode())
        answer = client.recv(4096)
        return b"heard" in answer or b" 502 " in answer or b" 200 " in answer
def socks(kind, address, port):
    with relay(port) as client:
        if os.environ.get("SANDBOX_RUNTIME"):
            user, _, word = base64.b64decode(token()).partition(b":")
            client.sendall(b"\\5\\1\\2")
            client.recv(2)
            client.sendall(bytes([1, len(user)]) + user + bytes([len(word)]) + word)
            client.recv(2)
            client.sendall(b"\\5\\1\\0" + bytes([kind]) + address + struct.pack(">H", port))
            if client.recv(16)[1:2] != b"\\0":
                return False
        client.sendall(b"hello")
        return client.recv(16) == b"heard"
def writes(path):
    with open(path, "a") as file:
        file.write("")
    return True
def opens(flags, *paths):
    # which of several files can be opened; those of a process that are its own to write say nothing
    found = []
    for path in paths:
        try: os.close(os.open(path, flags))
        except OSError: continue
        found.append(path)
    return found
def works(*actions):
    # whether one of several goes without an error
    for action in actions:
        try: action()
        except (OSError, ValueError): continue
        return True
def peers():
    # the processes at the other ends of Unix sockets: of those that are not this one, a descriptor of each
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(fd)) as end:
                peer = struct.unpack("i", end.getsockopt(socket.SOL_SOCKET, 77, 4))[0]  # SO_PEERPIDFD
        except OSError: continue
        if f"Pid:\\t{os.getpid()}\\n" not in open(f"/proc/self/fdinfo/{peer}").read():
            yield peer
def here(path):
    # where something of the workspace, or beside it, is at the second place where all is mounted
    return T["twin"] + os.path.abspath(path)[len(os.path.dirname(T["twin"])):]
"""


@dataclass(frozen=True)
class Attack:
    """One attack: the body of a function."""

    group: str
    name: str
    code: str

    @property
    def program(self) -> str:
        body = "\n".join(f"        {line}" for line in self.code.strip().splitlines())
        return (
            f"{PROLOGUE}\ndef attack():\n    try:\n{body}\n    except BaseException as exc:\n"
            "        print(type(exc).__name__, exc)\n        return False\nprint('THROUGH' if attack() else 'STOPPED')"
        )


READ, PROCESSES, KERNELS = "read files", "read other processes", "kernelbox itself"
WRITE, META, PERSIST, GIT = "write outside", "change files outside", "persist", "repository in the workspace"
NETWORK, UNIX, EXOTIC = "network", "Unix sockets", "other sockets and io_uring"
SIGNAL, TRACE, PRIVILEGE = "signals", "trace and enter processes", "namespaces, mounts, setuid"
SYSTEM, SURFACE = "the system", "parts of the Linux kernel"
PROXY, SRT = "the network through a proxy", "srt outside of the sandbox"

ATTACKS = [
    # -- read files
    Attack(READ, "a file that is denied", "return open(T['secret']).read() == 'secret'"),
    Attack(READ, "a file in a directory that is denied", "return open(T['denied'] + '/key').read() == 'secret'"),
    Attack(READ, "the list of a directory that is denied", "return 'key' in os.listdir(T['denied'])"),
    Attack(READ, ".env", "return 'secret' in open('.env').read()"),
    Attack(READ, ".env of a folder", "return 'secret' in open('app/.env').read()"),
    Attack(READ, ".env that is moved first", "os.rename('.env', 'env'); return 'secret' in open('env').read()"),
    Attack(READ, ".env by a hard link", "os.link('.env', 'linked'); return 'secret' in open('linked').read()"),
    Attack(READ, "a denied file by a link", "os.symlink(T['secret'], 'way'); return open('way').read() == 'secret'"),
    Attack(READ, "a denied file by /proc/self/root", "return open('/proc/self/root' + T['secret']).read() == 'secret'"),
    Attack(READ, "a denied file by /proc/1/root", "return open('/proc/1/root' + T['secret']).read() == 'secret'"),
    Attack(READ, "a denied file after chmod", "os.chmod(T['denied'], 0o777); return os.listdir(T['denied'])"),
    Attack(READ, "a file of another user", "return open(T['foreign']).read() == 'secret'"),
    Attack(READ, "/tmp of the host", "return os.path.exists(T['in_tmp'])"),
    Attack(READ, "shared memory of the host", "return os.path.exists(T['in_shm'])"),
    Attack(
        READ,
        "a denied file by O_PATH",
        "fd = os.open(T['secret'], os.O_PATH); return open(f'/proc/self/fd/{fd}').read()",
    ),
    Attack(READ, ".env by O_PATH", "fd = os.open('.env', os.O_PATH); return open(f'/proc/self/fd/{fd}').read()"),
    Attack(READ, ".env of a folder that is moved", "os.rename('app', 'b'); return 'secret' in open('b/.env').read()"),
    Attack(
        READ,
        "a denied file by openat2",
        "return call(437, 437, -100, T['secret'].encode(), struct.pack('3Q', os.O_RDONLY, 0, 0), 24) >= 0",
    ),
    Attack(
        READ,
        "news of a directory that is denied",
        "return libc.inotify_add_watch(libc.inotify_init(), T['denied'].encode(), 2) >= 0",
    ),
    Attack(READ, "news of /tmp", "return libc.inotify_add_watch(libc.inotify_init(), T['in_tmp'].encode(), 2) >= 0"),
    Attack(READ, "a denied file by /proc/1/cwd", "return open('/proc/1/cwd' + T['secret']).read() == 'secret'"),
    Attack(READ, "the size of a denied file", "return os.stat(T['secret']).st_size == 6"),
    Attack(READ, "news of .env", "return libc.inotify_add_watch(libc.inotify_init(), b'.env', 2) >= 0"),
    # -- read other processes
    Attack(PROCESSES, "environment", "return b'VICTIM_SECRET' in open(f'/proc/{T[\"victim\"]}/environ', 'rb').read()"),
    Attack(
        PROCESSES,
        "memory",
        """
with open(f'/proc/{T["victim"]}/maps') as maps, open(f'/proc/{T["victim"]}/mem', 'rb', 0) as memory:
    for start, end in (map(lambda x: int(x, 16), line.split()[0].split('-')) for line in maps if '[heap]' in line):
        memory.seek(start)
        if b'VICTIM_' in memory.read(end - start): return True
""",
    ),
    Attack(PROCESSES, "command line", "return b'input()' in open(f'/proc/{T[\"victim\"]}/cmdline', 'rb').read()"),
    Attack(PROCESSES, "list", "return str(T['victim']) in os.listdir('/proc')"),
    Attack(PROCESSES, "working directory", "return os.listdir(f'/proc/{T[\"victim\"]}/cwd') is not None"),
    Attack(PROCESSES, "descriptors", "return os.listdir(f'/proc/{T[\"victim\"]}/fd') is not None"),
    Attack(PROCESSES, "root directory", "return os.listdir(f'/proc/{T[\"victim\"]}/root') is not None"),
    Attack(PROCESSES, "System V shared memory", "return libc.shmget(T['sysv'], 0, 0) >= 0"),
    Attack(PROCESSES, "the host's variables", "return os.environ.get('HOST_SECRET') == 'secret'"),
    Attack(
        PROCESSES,
        "queues and semaphores",
        "name = T['queue'].encode()\n"
        "return max(libc.msgget(T['sysv'], 0), libc.semget(T['sysv'], 0, 0), libc.mq_open(name, os.O_RDWR)) >= 0",
    ),
    Attack(
        PROCESSES,
        "memory that is shared with them",
        "return [line for line in open('/proc/self/maps') if 'rw-s' in line and not line.rstrip().endswith('/state')]",
    ),
    Attack(PROCESSES, "list, where /proc is mounted again", "return str(T['victim']) in os.listdir(T['proc'])"),
    Attack(
        PROCESSES,
        "command line, where /proc is mounted again",
        "return b'input()' in open(f'{T[\"proc\"]}/{T[\"victim\"]}/cmdline', 'rb').read()",
    ),
    # -- kernelbox itself
    Attack(KERNELS, "the runtime directory", "return os.listdir(T['runtime'])"),
    Attack(KERNELS, "the key of the homes", "return open(T['key'], 'rb').read()"),
    Attack(KERNELS, "another kernel's environment", "return open(f'/proc/{T[\"neighbour\"]}/environ', 'rb').read()"),
    Attack(KERNELS, "another kernel's memory", "return open(f'/proc/{T[\"neighbour\"]}/mem', 'rb', 0)"),
    Attack(
        KERNELS,
        "another kernel's variables, in what the two were forked from",
        """
wanted, found = re.compile(b'NEIGHBOUR' + b'_SECRET_[0-9a-f]{16}'), []
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
    for line in maps:
        start, end = (int(x, 16) for x in line.split()[0].split('-'))
        if 'rw' in line.split()[1] and '[v' not in line:
            memory.seek(start)
            try: found += wanted.findall(memory.read(end - start))
            except OSError: continue
return found
""",
    ),
    Attack(KERNELS, "another kernel's socket", "return not socket.socket(socket.AF_UNIX).connect(T['socket'])"),
    Attack(KERNELS, "the template's socket", "return not socket.socket(socket.AF_UNIX).connect(T['template'])"),
    Attack(KERNELS, "another kernel by the API", "import kernelbox\nreturn kernelbox.execute('neighbour', '1').ok"),
    Attack(KERNELS, "a record is rewritten", "return writes(T['record'])"),
    Attack(
        KERNELS,
        "a descriptor of a directory or process was left",
        "left = [fd for fd in os.listdir('/proc/self/fd') if os.path.isdir(f'/proc/self/fd/{fd}')"
        " or 'pidfd' in os.readlink(f'/proc/self/fd/{fd}')]\nreturn left",
    ),
    Attack(
        KERNELS,
        "the directory of its own log",
        """
fds = [f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd')]
paths = [os.readlink(fd) for fd in fds if os.path.lexists(fd)]
return [os.listdir(os.path.dirname(path)) for path in paths if path.startswith(T['runtime'])]
""",
    ),
    # -- write outside
    Attack(WRITE, "directly", "return writes(T['outside'] + '/new')"),
    Attack(WRITE, "an existing file", "return writes(T['file'])"),
    Attack(WRITE, "by ..", "return writes('../outside/new')"),
    Attack(WRITE, "by a link to a file", "os.symlink(T['file'], 'l1'); return writes('l1')"),
    Attack(WRITE, "by a link to a directory", "os.symlink(T['outside'], 'l2'); return writes('l2/new')"),
    Attack(
        WRITE,
        "by a link that is raced",
        """
import threading
os.makedirs('race', exist_ok=True)
def swap():
    for _ in range(300):
        os.rename('race', 'race2'); os.symlink(T['outside'], 'race'); os.unlink('race'); os.rename('race2', 'race')
thread = threading.Thread(target=swap); thread.start()
while thread.is_alive():
    try: open('race/raced', 'w').close()
    except OSError: pass
thread.join()
return os.path.exists(T['outside'] + '/raced')
""",
    ),
    Attack(WRITE, "by a hard link", "os.link(T['file'], 'h1'); return writes('h1')"),
    Attack(WRITE, "by a move", "open('m', 'w').close(); os.rename('m', T['outside'] + '/moved'); return True"),
    Attack(
        WRITE,
        "by moving the workspace",
        """
here = os.getcwd()
os.rename(here, here + '2')
os.rename(here + '2', here)
return True
""",
    ),
    Attack(WRITE, "by /proc/self/root", "return writes('/proc/self/root' + T['file'])"),
    Attack(WRITE, "by /proc/1/root", "return writes('/proc/1/root' + T['file'])"),
    Attack(WRITE, "by /proc/self/cwd", "return writes('/proc/self/cwd/../outside/new')"),
    Attack(
        WRITE,
        "by the descriptor of a file",
        """
fd = os.open(T['file'], os.O_RDONLY)
return writes(f'/proc/self/fd/{fd}')
""",
    ),
    Attack(
        WRITE,
        "by a descriptor that was inherited",
        """
for fd in map(int, os.listdir('/proc/self/fd')):
    try: os.open(f'/proc/self/fd/{fd}/../new', os.O_WRONLY | os.O_CREAT)
    except OSError: continue
    return True
""",
    ),
    Attack(WRITE, "by a program", "return subprocess.run(['touch', T['outside'] + '/touched']).returncode == 0"),
    Attack(WRITE, "by bash", "return subprocess.run('echo > ' + T['outside'] + '/b', shell=True).returncode == 0"),
    Attack(
        WRITE,
        "by memory of a file",
        """
with open(T['file'], 'r+b') as file:
    return mmap.mmap(file.fileno(), 0)
""",
    ),
    Attack(WRITE, "a directory", "os.mkdir(T['outside'] + '/made'); return True"),
    Attack(WRITE, "a FIFO", "os.mkfifo(T['outside'] + '/fifo'); return True"),
    Attack(
        WRITE,
        "by a file without a name",
        """
fd = os.open('.', os.O_TMPFILE | os.O_RDWR)
return libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, (T['outside'] + '/linked').encode(), 0x400) == 0
""",
    ),
    Attack(WRITE, "a named pipe", "return os.open(T['pipe'], os.O_WRONLY | os.O_NONBLOCK) > 0"),
    Attack(
        WRITE,
        "a named pipe by a link and /proc",
        """
os.symlink(T['pipe'], 'way')
fd = os.open(T['pipe'], os.O_RDONLY | os.O_NONBLOCK)
return opens(os.O_WRONLY | os.O_NONBLOCK, 'way', f'/proc/self/fd/{fd}', '/proc/self/root' + T['pipe'])
""",
    ),
    Attack(
        WRITE,
        "by an exchange",
        "open('m', 'w').close(); return libc.renameat2(-100, b'm', -100, T['file'].encode(), 2) == 0",
    ),
    Attack(WRITE, "a link", "os.symlink('/', T['outside'] + '/new'); return True"),
    # -- change files outside
    Attack(META, "mode", "os.chmod(T['file'], 0o666); return True"),
    Attack(META, "times", "os.utime(T['file']); return True"),
    Attack(META, "truncate", "os.truncate(T['file'], 1); return True"),
    Attack(META, "delete", "os.unlink(T['spare']); return True"),
    Attack(META, "mode of a device", "os.chmod('/dev/null', os.stat('/dev/null').st_mode & 0o7777); return True"),
    Attack(META, "times of a device", "os.utime('/dev/zero'); return True"),
    Attack(META, "attributes", "os.setxattr(T['file'], 'user.x', b'1'); return True"),
    Attack(
        META,
        "times of the interpreter",  # the same as before, which changes the time of the change
        """
file = os.path.realpath(sys.executable)
before = os.stat(file)
os.utime('/proc/self/exe', ns=(before.st_atime_ns, before.st_mtime_ns))
return os.stat(file).st_ctime_ns != before.st_ctime_ns
""",
    ),
    Attack(
        META,
        "rights of another user",
        """
entries = ((1, 6, -1), (2, 6, T['other_uid']), (4, 4, -1), (16, 6, -1), (32, 4, -1))
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
os.setxattr(T['file'], 'system.posix_acl_access', acl)
return True
""",
    ),
    # -- persist
    Attack(PERSIST, ".bashrc", "return writes(os.path.expanduser('~/.bashrc'))"),
    Attack(PERSIST, ".profile that is not there", "return writes(os.path.expanduser('~/.bash_profile'))"),
    Attack(PERSIST, "authorized_keys", "os.mkdir(os.path.expanduser('~/.ssh')); return True"),
    Attack(PERSIST, "IPython's start-up folder", "os.makedirs(os.path.expanduser('~/.ipython/x')); return True"),
    Attack(PERSIST, "packages of the user", "os.makedirs(os.path.expanduser('~/.local/lib/x')); return True"),
    Attack(PERSIST, "systemd of the user", "os.makedirs(os.path.expanduser('~/.config/systemd/u')); return True"),
    Attack(PERSIST, "packages of the interpreter", "return os.access(os.path.dirname(os.__file__), os.W_OK)"),
    Attack(PERSIST, "bytecode of the interpreter", "import json\nreturn writes(json.__cached__)"),
    Attack(PERSIST, "kernelbox's own code", "import kernelbox\nreturn writes(kernelbox.__file__)"),
    Attack(PERSIST, "the interpreter's file", "return os.open('/proc/self/exe', os.O_WRONLY) > 0"),
    Attack(
        PERSIST,
        "the interpreter's file, cut",
        "os.truncate('/proc/self/exe', os.stat('/proc/self/exe').st_size); return True",
    ),
    Attack(PERSIST, "a core dump", "resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)); return True"),
    # -- repository in the workspace
    Attack(GIT, "hook", "return writes('.git/hooks/pre-commit')"),
    Attack(GIT, "configuration", "return writes('.git/config')"),
    Attack(GIT, "hooks are replaced", "os.rename('.git/hooks', '.git/h'); os.mkdir('.git/hooks'); return True"),
    Attack(GIT, ".git is replaced", "os.rename('.git', 'git2'); os.makedirs('.git/hooks'); return True"),
    Attack(GIT, ".git is deleted", "shutil.rmtree('.git/hooks'); return True"),
    Attack(GIT, "a repository in a folder", "return writes('sub/repo/.git/hooks/post-checkout')"),
    Attack(GIT, "the folder is replaced", "os.rename('sub', 'sub2'); return writes('sub2/repo/.git/hooks/x')"),
    Attack(GIT, "git config", "return subprocess.run(['git', 'config', 'core.fsmonitor', 'x']).returncode == 0"),
    Attack(GIT, "settings of an editor", "return writes('.vscode/tasks.json')"),
    Attack(GIT, "servers of an agent", "return writes('.mcp.json')"),
    Attack(GIT, "a FIFO for the configuration", "os.unlink('.git/config'); os.mkfifo('.git/config'); return True"),
    Attack(
        GIT,
        "a file moved over the configuration",
        "open('x', 'w').close(); os.replace('x', '.git/config'); return True",
    ),
    Attack(
        GIT,
        ".git is exchanged",
        "os.makedirs('git2/hooks'); return libc.renameat2(-100, b'git2', -100, b'.git', 2) == 0",
    ),
    Attack(GIT, "the configuration by a hard link", "os.link('.git/config', 'linked'); return writes('linked')"),
    # -- network
    Attack(NETWORK, "TCP", "return connects(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', T['tcp']))"),
    Attack(NETWORK, "TCP over IPv6", "return connects(socket.AF_INET6, socket.SOCK_STREAM, ('::1', T['tcp6']))"),
    Attack(NETWORK, "UDP", "return connects(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', T['udp']))"),
    Attack(
        NETWORK,
        "an address of the machine",
        "return connects(socket.AF_INET, socket.SOCK_STREAM, (T['address'], T['tcp']))",
    ),
    Attack(NETWORK, "routes", "return len(open('/proc/net/route').readlines()) > 1"),
    Attack(
        NETWORK,
        "TCP over IPv6 to an address of IPv4",
        "return connects(socket.AF_INET6, socket.SOCK_STREAM, ('::ffff:127.0.0.1', T['tcp']))",
    ),
    # -- Unix sockets
    Attack(UNIX, "by path", "return connects(socket.AF_UNIX, socket.SOCK_STREAM, T['unix'])"),
    Attack(UNIX, "by name", "return connects(socket.AF_UNIX, socket.SOCK_STREAM, T['abstract'])"),
    Attack(
        UNIX,
        "datagrams",
        """
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
    return client.sendto(b'x', T['dgram'])
""",
    ),
    Attack(
        UNIX,
        "datagrams of a pair",
        """
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.connect(T['dgram'])
return one.send(b'x')
""",
    ),
    Attack(UNIX, "by a number beyond 32 bits", "return call(41, 198, ctypes.c_ulong(1 << 32 | 1), 1, 0) >= 0"),
    Attack(
        UNIX,
        "a pair of raw sockets",
        "return socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0].connect(T['dgram']) is None",
    ),
    # -- other sockets and io_uring
    Attack(EXOTIC, "vsock", "return socket.socket(40, socket.SOCK_STREAM)"),
    Attack(EXOTIC, "packets", "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    Attack(EXOTIC, "raw", "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    Attack(EXOTIC, "netlink of the system", "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)"),
    Attack(EXOTIC, "io_uring", "return call(425, 425, 4, ctypes.create_string_buffer(256)) >= 0"),
    # -- signals
    Attack(SIGNAL, "a process", "os.kill(T['victim'], 0); return True"),
    Attack(SIGNAL, "the template", "os.kill(T['template_pid'], 0); return True"),
    Attack(SIGNAL, "another kernel", "os.kill(T['neighbour'], 0); return True"),
    Attack(SIGNAL, "by descriptor", "signal.pidfd_send_signal(os.pidfd_open(T['victim']), 0); return True"),
    Attack(SIGNAL, "priority", "os.getpriority(os.PRIO_PROCESS, T['victim']); return True"),
    Attack(SIGNAL, "limits", "resource.prlimit(T['victim'], resource.RLIMIT_CORE); return True"),
    Attack(
        SIGNAL,
        "real-time priority",
        "return in_child(lambda: not os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))",
    ),
    Attack(SIGNAL, "all processes at once", "os.kill(-1, 0); return True"),
    # -- trace and enter processes
    Attack(
        TRACE,
        "ptrace",
        """
call(101, 117, 16, T['victim'], 0, 0)
os.waitpid(T['victim'], 0x40000000)
call(101, 117, 17, T['victim'], 0, 0)
return True
""",
    ),
    Attack(
        TRACE,
        "ptrace of a child",
        """
child = os.fork()
if child == 0:
    time.sleep(60); os._exit(0)
try:
    return call(101, 117, 16, child, 0, 0) == 0
finally:
    os.kill(child, 9); os.waitpid(child, 0)
""",
    ),
    Attack(TRACE, "pidfd_getfd", "return call(438, 438, os.pidfd_open(T['victim']), 0, 0) >= 0"),
    Attack(
        TRACE,
        "process_vm_readv",
        """
room = ctypes.create_string_buffer(8)
vector = struct.pack('QQ', ctypes.addressof(room), 8)
return call(310, 270, os.getppid() or T['victim'], vector, 1, vector, 1, 0) >= 0
""",
    ),
    Attack(
        TRACE,
        "setns",
        """
fd = os.open(f'/proc/{T["victim"]}/ns/net', os.O_RDONLY)
return call(308, 268, fd, 0) == 0
""",
    ),
    Attack(
        TRACE,
        "parents of its namespaces",
        """
import fcntl
places = [os.open(f'/proc/self/ns/{name}', os.O_RDONLY) for name in ('user', 'pid')]
return works(*(lambda fd=fd: fcntl.ioctl(fd, 0xB702) for fd in places))  # NS_GET_PARENT
""",
    ),
    Attack(
        TRACE,
        "the namespace of a socket",
        """
import fcntl
with socket.socket(socket.AF_INET) as any_socket: return fcntl.ioctl(any_socket, 0x894C) >= 0  # SIOCGSKNS
""",
    ),
    # -- namespaces, mounts, setuid
    Attack(
        PRIVILEGE,
        "a program that is made setuid",
        """
shutil.copy('/bin/true', 'planted')
os.chmod('planted', 0o4755)
return os.stat('planted').st_mode & 0o4000
""",
    ),
    Attack(
        PRIVILEGE,
        "a file that is made setuid",
        """
os.close(os.open('planted', os.O_CREAT | os.O_WRONLY, 0o4755))
return os.stat('planted').st_mode & 0o4000
""",
    ),
    Attack(
        PRIVILEGE,
        "a program that is made setgid",
        "shutil.copy('/bin/true', 'planted'); os.chmod('planted', 0o2755); return os.stat('planted').st_mode & 0o2000",
    ),
    Attack(
        PRIVILEGE,
        "a program with a capability",
        """
shutil.copy('/bin/true', 'planted')
os.setxattr('planted', 'security.capability', struct.pack('<5I', 0x2000001, 1 << 21, 0, 0, 0))
return True
""",
    ),
    Attack(
        PRIVILEGE,
        "capabilities by the call for them",
        "return in_child(lambda: libc.capset(struct.pack('Ii', 0x20080522, 0), struct.pack('6I', *[0x1FF] * 6)) == 0)",
    ),
    Attack(PRIVILEGE, "secure bits", "return in_child(lambda: libc.prctl(28, 0x10, 0, 0, 0) == 0)"),
    Attack(
        PRIVILEGE,
        "a mount namespace by clone, with a flag beyond 32 bits",
        """
pid = call(56, 220, ctypes.c_ulong(1 << 33 | 0x20000 | 17), 0, 0, 0, 0, by=holding)
if pid == 0: libc._exit(0)
os.kill(pid, 9)  # it may wait for a thread that was not copied
os.waitpid(pid, 0)
return True
""",
    ),
    Attack(
        PRIVILEGE,
        "a user namespace",
        """
child = os.fork()
if child == 0: os._exit(0 if libc.unshare(0x10000000) == 0 else 1)
return os.waitpid(child, 0)[1] == 0
""",
    ),
    Attack(
        PRIVILEGE,
        "a user namespace by clone",
        """
pid = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0, by=holding)
if pid == 0: libc._exit(0)
os.kill(pid, 9)  # it may wait for a thread that was not copied
os.waitpid(pid, 0)
return True
""",
    ),
    Attack(
        PRIVILEGE,
        "clone3",
        """
arguments = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
pid = call(435, 435, arguments, 64, by=holding)
if pid == 0: libc._exit(0)
os.kill(pid, 9)  # it may wait for a thread that was not copied
os.waitpid(pid, 0)
return True
""",
    ),
    Attack(
        PRIVILEGE,
        "a mount is undone",
        """
return libc.umount2(T['mounted'].encode(), 2) == 0 or libc.umount2(T['denied'].encode(), 2) == 0
""",
    ),
    Attack(PRIVILEGE, "a mount is made writable", "return libc.mount(None, b'/', None, 32 | 4096, None) == 0"),
    Attack(
        PRIVILEGE,
        "a mount in a child",
        """
code = "import ctypes; l = ctypes.CDLL(None); print(l.unshare(0x10020000), l.mount(b'x', b'/mnt', b'tmpfs', 0, None))"
return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout.split() == ['0', '0']
""",
    ),
    Attack(
        PRIVILEGE,
        "chroot",
        """
child = os.fork()
if child == 0:
    try: os.chroot('/'); os._exit(0)
    finally: os._exit(1)
return os.waitpid(child, 0)[1] == 0
""",
    ),
    Attack(
        PRIVILEGE,
        "a program that is setuid",
        """
told = subprocess.run([T['setuid'], '-u'], capture_output=True, text=True).stdout.strip()
return told not in ('', str(os.getuid()))
""",
    ),
    Attack(
        PRIVILEGE,
        "another user",
        """
child = os.fork()
if child == 0:
    try: os.setuid(T['other_uid']); os._exit(0)
    finally: os._exit(1)
return os.waitpid(child, 0)[1] == 0
""",
    ),
    Attack(PRIVILEGE, "owner of a file", "open('o', 'w').close(); os.chown('o', T['other_uid'], -1); return True"),
    Attack(
        PRIVILEGE,
        "a process beside the kernel",
        """
pid = call(56, 220, 0x8000 | 17, 0, 0, 0, 0, by=holding)  # CLONE_PARENT
if pid == 0: libc._exit(0)
return True
""",
    ),
    Attack(PRIVILEGE, "other groups", "return in_child(lambda: os.setgroups([0]) is None)"),
    # -- the system
    Attack(SYSTEM, "/proc/sys", "return os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY) > 0"),
    Attack(SYSTEM, "sysrq", "return os.open('/proc/sysrq-trigger', os.O_WRONLY) > 0"),
    Attack(SYSTEM, "its own limits in /proc", "return os.open('/proc/self/oom_score_adj', os.O_WRONLY) > 0"),
    Attack(SYSTEM, "a disk", "return os.open(T['disk'], os.O_RDONLY) > 0"),
    Attack(
        SYSTEM,
        "a device is made",
        "os.mknod('disk', 0o60600, T['disk_number']); return os.open('disk', os.O_RDONLY) > 0",
    ),
    Attack(SYSTEM, "/dev/kmsg", "return os.open('/dev/kmsg', os.O_RDONLY) > 0"),
    Attack(SYSTEM, "/sys", "return os.open('/sys/kernel/mm/ksm/run', os.O_WRONLY) > 0"),
    Attack(
        SYSTEM,
        "a lease that others wait for",
        "import fcntl\nreturn fcntl.fcntl(os.open('leased', os.O_CREAT), 1024, 0) == 0",
    ),
    Attack(SYSTEM, "the kernel's debug files", "return os.listdir('/sys/kernel/debug') is not None"),
    Attack(
        SYSTEM,
        "control groups",
        "name = T['cgroup'] + '/kernelbox-attack'; os.mkdir(name); return os.rmdir(name) is None",
    ),
    Attack(
        SYSTEM,
        "file handles",
        """
handle = ctypes.create_string_buffer(struct.pack('II', 128, 0), 136)
return call(303, 264, -100, b'/', handle, ctypes.byref(ctypes.c_int()), 0) == 0
""",
    ),
    Attack(SYSTEM, "host name", "return libc.sethostname(os.uname().nodename.encode(), len(os.uname().nodename)) == 0"),
    Attack(SYSTEM, "swap", "return libc.swapoff(b'/nowhere') == 0 or ctypes.get_errno() != errno.EPERM"),
    Attack(
        SYSTEM,
        "a file that nobody can delete",
        """
import fcntl
fd = os.open('kept', os.O_CREAT | os.O_RDWR)
fcntl.ioctl(fd, 0x40086602, struct.pack('l', 0x10))  # FS_IOC_SETFLAGS with FS_IMMUTABLE_FL, and back
fcntl.ioctl(fd, 0x40086602, struct.pack('l', 0))
return True
""",
    ),
    Attack(SYSTEM, "keys of the user", "return open('/proc/keys').read()"),
    Attack(SYSTEM, "pages of the machine's memory", "return os.read(os.open('/proc/kpageflags', os.O_RDONLY), 8)"),
    Attack(SYSTEM, "memory of the Linux kernel", "return os.read(os.open('/proc/slabinfo', os.O_RDONLY), 8)"),
    Attack(SYSTEM, "timers of all processes", "return os.read(os.open('/proc/timer_list', os.O_RDONLY), 8)"),
    Attack(SYSTEM, "/dev of the host", "open('/dev/attack', 'w').close(); os.unlink('/dev/attack'); return True"),
    Attack(SYSTEM, "the log of the Linux kernel", "return libc.klogctl(10, None, 0) >= 0"),
    # -- parts of the Linux kernel
    Attack(SURFACE, "keyring", "return call(248, 217, b'user', b'kernelbox-attack', b'x', 1, -3) > 0"),
    Attack(SURFACE, "bpf", "return call(321, 280, 0, struct.pack('IIII', 2, 4, 4, 1) + bytes(112), 128) >= 0"),
    Attack(SURFACE, "userfaultfd", "return call(323, 282, 1) >= 0"),
    Attack(
        SURFACE,
        "perf",
        """
attributes = struct.pack('IIQ', 1, 112, 0) + bytes(24) + struct.pack('Q', 0b1100001) + bytes(64)
return call(298, 241, attributes, 0, -1, -1, 0) >= 0
""",
    ),
    Attack(SURFACE, "calls by the numbers of x32", "return call(0x40000000 + 39, 0x40000000) >= 0"),
    Attack(SURFACE, "mount by the new interface", "return call(430, 430, b'tmpfs', 0) >= 0"),
    Attack(SURFACE, "fanotify", "return call(300, 262, 0, 0) >= 0"),
    Attack(
        SURFACE,
        "calls of 32 bits",
        """
assert NUMBERS == 0
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes([0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3]))  # getpid by int 0x80
getpid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
return in_child(lambda: getpid() > 0)
""",
    ),
    Attack(
        KERNELS,
        "a directory that the first process has open",
        "return any(os.path.isdir(f'/proc/1/fd/{fd}') for fd in os.listdir('/proc/1/fd'))",
    ),
    # -- the same in other ways
    Attack(READ, "a denied file where it is mounted again", "return open(here(T['secret'])).read() == 'secret'"),
    Attack(READ, ".env where it is mounted again", "return 'secret' in open(here('.env')).read()"),
    Attack(
        READ, ".env by a program", "return subprocess.run(['cat', '.env'], capture_output=True).stdout == b'secret'"
    ),
    Attack(
        READ,
        ".env in an archive",
        "subprocess.run('tar cf all.tar . 2>&1', shell=True); return b'secret' in open('all.tar', 'rb').read()",
    ),
    Attack(
        READ,
        ".env by a copy of the system's",
        "return os.copy_file_range(os.open('.env', 0), os.open('c', os.O_CREAT | os.O_RDWR), 6) == 6",
    ),
    Attack(KERNELS, "the key where it is mounted again", "return open(here(T['key']), 'rb').read()"),
    Attack(
        PROCESSES,
        "its times, session and affinity",
        """
pid = T['victim']
return works(
    lambda: os.getsid(pid),
    lambda: os.sched_getaffinity(pid),
    lambda: time.clock_gettime((~pid << 3) | 2),
    lambda: call(252, 31, 1, pid),
    lambda: os.listdir(f'/proc/{pid}/task'),
)
""",
    ),
    Attack(
        SIGNAL, "the process at the other end of a socket", "return [signal.pidfd_send_signal(p, 0) for p in peers()]"
    ),
    Attack(
        SIGNAL,
        "by a timer, a queue, a group and a notice of input",
        """
import fcntl
pid, (end, _) = T['victim'], os.pipe()
return works(
    lambda: call(129, 138, pid, 0, bytes(128)),
    lambda: call(234, 131, pid, pid, 0),
    lambda: os.killpg(pid, 0),
    lambda: fcntl.fcntl(end, fcntl.F_SETOWN, pid),
)
""",
    ),
    Attack(TRACE, "descriptors of the other end of a socket", "return [call(438, 438, p, 0, 0) for p in peers()]"),
    Attack(
        TRACE,
        "namespaces of the other end of a socket",
        """
import fcntl
return any(in_child(lambda: call(308, 268, fcntl.ioctl(p, 0xFF03), 0, by=holding) == 0) for p in peers())
""",
    ),
    Attack(GIT, "hook of a submodule in a folder", "return writes('.git/modules/libs/inner/hooks/post-checkout')"),
    Attack(GIT, "configuration of its submodule", "return writes('.git/modules/libs/inner/modules/deep/config')"),
    Attack(GIT, "what a worktree belongs to", "return writes('.git/worktrees/other/commondir')"),
    Attack(
        UNIX,
        "half of a pair, connected to another end",
        """
ends = [socket.socketpair(socket.AF_UNIX, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
for one, other in ends: other.close()
tries = (lambda one=one: one.connect(T['unix']) for one, _ in ends)
return works(*tries, lambda: socket.socketpair(30, socket.SOCK_STREAM))
""",
    ),
    Attack(
        EXOTIC,
        "every other family",
        """
known = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW)
others = [number for number in range(46) if number not in known]
return works(*(lambda family=family, kind=kind: socket.socket(family, kind) for family in others for kind in kinds))
""",
    ),
    Attack(
        EXOTIC,
        "every other protocol of netlink",
        "return works(*(lambda n=n: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, n) for n in range(1, 23)))",
    ),
    Attack(
        PRIVILEGE,
        "a mode for others by every call that sets one",
        """
old, made = os.umask(0), []
for action in (
    lambda: libc.creat(b's1', 0o4755),
    lambda: os.mknod('s2', 0o104755),
    lambda: os.close(os.open('s3', os.O_CREAT | os.O_WRONLY, 0o2755)),
    lambda: call(437, 437, -100, b's4', struct.pack('3Q', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24),
    lambda: (open('s5', 'w').close(), call(452, 452, -100, b's5', 0o4755, 0)),
    lambda: os.fchmod(open('s6', 'w').fileno(), 0o4755),
    lambda: os.mkdir('s7', 0o2777),
): works(action)
os.umask(old)
return [name for name in os.listdir() if name[0] == 's' and os.stat(name).st_mode & 0o6000]
""",
    ),
    Attack(
        PRIVILEGE,
        "every new call for mounts",
        """
return in_child(lambda: works(
    lambda: call(428, 428, -100, b'/', 0, by=holding),
    lambda: call(428, 428, -100, b'/', 1, by=holding),
    lambda: call(430, 430, b'tmpfs', 0, by=holding),
    lambda: call(433, 433, -100, b'/', 0, by=holding),
    lambda: call(442, 442, -100, b'/', 0, struct.pack('4Q', 0, 0, 0, 0), 32, by=holding),
    lambda: call(467, 467, -100, b'/', 1, struct.pack('4Q', 0, 0, 0, 0), 32, by=holding),
))
""",
    ),
    Attack(PRIVILEGE, "a map of users", "return opens(os.O_WRONLY, '/proc/self/uid_map', '/proc/self/gid_map')"),
    Attack(
        SYSTEM,
        "every setting in /proc",
        """
return opens(os.O_WRONLY, *(
    os.path.join(place, name) for start in ('/proc/sys', '/proc/irq', '/proc/bus') for place, _, names in os.walk(start)
    for name in names
), '/proc/mtrr', '/proc/pressure/memory')
""",
    ),
    Attack(
        SYSTEM,
        "settings in /sys",
        """
return opens(os.O_WRONLY, *(
    os.path.join(place, name) for start in ('/sys/kernel', '/sys/power', '/sys/module', '/sys/fs/cgroup')
    for place, _, names in os.walk(start) for name in names
))
""",
    ),
    Attack(
        SYSTEM,
        "attributes of a file by the newest calls",
        """
path, room = T['file'].encode(), ctypes.create_string_buffer(b'1')
return works(
    lambda: call(463, 463, -100, path, 0, b'user.y', struct.pack('QII', ctypes.addressof(room), 1, 0), 16),
    lambda: call(469, 469, -100, path, bytes(24), 24, 0),
)
""",
    ),
    Attack(
        SURFACE,
        "rare calls",
        """
pid, (_, end), room = os.pidfd_open(os.getpid()), os.pipe(), ctypes.create_string_buffer(64)
vector = struct.pack('QQ', ctypes.addressof(room), 8)
return works(
    lambda: call(250, 219, 0, -3, 0),
    lambda: call(249, 218, b'user', b'x', None, -3),
    lambda: call(312, 272, os.getpid(), os.getpid(), 0, 0, 1),
    lambda: call(440, 440, pid, vector, 0, 4, 0),
    lambda: call(278, 75, end, vector, 1, 0),
    lambda: call(279, 239, 0, 0, None, None, None, 0),
    lambda: call(256, 238, 0, 8, room, room),
    lambda: call(154, -1, 0, room, 64),
)
""",
    ),
    Attack(SURFACE, "calls that are newer", "return works(*(lambda n=n: call(n, n) for n in range(470, 600)))"),
    # -- the proxy that kernels in srt have
    Attack(PROXY, "a tunnel to loopback", "return tunnels('127.0.0.1', T['tcp'])"),
    Attack(PROXY, "a tunnel to localhost", "return tunnels('localhost', T['tcp'])"),
    Attack(PROXY, "a tunnel to another address of loopback", "return tunnels('127.0.0.2', T['tcp'])"),
    Attack(PROXY, "a tunnel to loopback as a number", "return tunnels('2130706433', T['tcp'])"),
    Attack(PROXY, "a tunnel to no address", "return tunnels('0.0.0.0', T['tcp'])"),
    Attack(PROXY, "a tunnel to loopback in an address of IPv6", "return tunnels('[::ffff:127.0.0.1]', T['tcp'])"),
    Attack(PROXY, "a tunnel to an address of the machine", "return tunnels(T['address'], T['tcp'])"),
    Attack(PROXY, "a page of loopback", "return gets('127.0.0.1', T['tcp'])"),
    Attack(PROXY, "a page of loopback by another name", "return gets('127.0.0.1', T['tcp'], 'example.org')"),
    Attack(PROXY, "SOCKS to loopback", "return socks(1, bytes([127, 0, 0, 1]), T['tcp'])"),
    Attack(PROXY, "SOCKS to localhost", "return socks(3, b'\\x09localhost', T['tcp'])"),
    # -- what of srt runs outside
    Attack(SRT, "its settings", "return 'network' in open(T['srt_place'] + '/settings.json').read()"),
    Attack(SRT, "new settings", "return writes(T['srt_place'] + '/settings.json')"),
    Attack(SRT, "its sockets", "return os.listdir(T['srt_place'])"),
    Attack(SRT, "its environment", "return b'PATH=' in open(f'/proc/{T[\"srt\"]}/environ', 'rb').read()"),
    Attack(SRT, "a signal", "os.kill(T['srt'], 0); return True"),
    Attack(SRT, "a signal to its deputy", "os.kill(T['deputy'], 0); return True"),
    Attack(
        SRT,
        "its proxy by the port that it has outside",
        "with socket.create_connection(('127.0.0.1', T['srt_port']), 5): return True",
    ),
]
