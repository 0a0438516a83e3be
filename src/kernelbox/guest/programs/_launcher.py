"""How an approved program gets its directory and its script, no matter what threads of the cell do.

The working directory is one for all threads of the kernel. The script is in a file that the program is given by the
number of a descriptor, and a thread can put another file behind that number. So a small interpreter is started in
between, in which no code of the cell runs. Its arguments, which nothing can change, have the directory, and a digest
of the script and of the program's words. It goes to the directory, reads the file, starts the program if the digest is
right, and gives it a sealed copy of what it has read.
"""

from __future__ import annotations

import os
import sys
from _blake2 import blake2b

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

_PYTHON = os.fsencode(sys.executable)

# The environment comes from /proc: Python may have added LC_CTYPE to its own (PEP 538). The signals that Python ignores
# would stay ignored in the program.
_CODE = b"""
import os, sys, _signal
for name in ("SIGINT", "SIGPIPE", "SIGXFZ", "SIGXFSZ"):
    if hasattr(_signal, name): _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
from _blake2 import blake2b
digest, directory, *words = map(os.fsencode, sys.argv[1:])
try:
    os.chdir(directory)
    there = os.getcwdb() == directory
except OSError:
    there = False
if not there:
    sys.exit("RuntimeError: the directory of the command was moved or deleted after it was approved; it was not run")
if digest:
    with open(0, "rb", closefd=False) as file: script = file.read()
    if blake2b(b"\\0".join([*words, script])).hexdigest().encode() != digest:
        sys.exit("RuntimeError: a cell has changed the script after it was approved; it was not run")
    if hasattr(os, "memfd_create"):
        import fcntl
        fd = os.memfd_create("script", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(fd, "wb", closefd=False) as file: file.write(script)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    else:
        import tempfile
        with tempfile.TemporaryFile() as file:
            file.write(script)
            file.flush()
            fd = os.dup(file.fileno())
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, 0)
try:
    with open("/proc/self/environ", "rb") as file: pairs = file.read().split(b"\\0")
    environment = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
except FileNotFoundError:
    environment = dict(os.environb)
try:
    os.execvpe(words[0], words, environment)
except OSError as exc:
    print(f"{os.fsdecode(words[0])}: {exc.strerror}", file=sys.stderr)
    sys.exit(127)
"""


def carry(words: tuple[bytes, ...], directory: bytes, script: bytes | None = None) -> tuple[bytes, ...]:
    """Returns a command that runs the program `words` in a directory, and checks the script that it reads."""
    digest = b"" if script is None else blake2b(b"\0".join([*words, script])).hexdigest().encode()
    return (_PYTHON, b"-I", b"-S", b"-c", _CODE, digest, directory, *words)
