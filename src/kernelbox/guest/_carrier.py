"""How an approved script comes to the program that reads it, whatever file a cell puts in the place of ours.

The script is in a file that the program is given by the number of a descriptor, and a thread of the cell can put
another file behind that number at any moment. So a small interpreter is started in between, in which no code of the
cell's runs. Its arguments, which nothing can change, have a digest of the script and of the program's words. It reads
the file, starts the program if the digest is right, and gives it a sealed copy of what it has read.
"""

from __future__ import annotations

import os
import sys
from _blake2 import blake2b

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

_PYTHON = os.fsencode(sys.executable)

# The environment comes from /proc: Python may have added LC_CTYPE to its own (PEP 538). The signals that Python ignores
# would stay ignored in the program.
_CODE = b"""
import os, sys, _signal
for name in ("SIGINT", "SIGPIPE", "SIGXFZ", "SIGXFSZ"):
    if hasattr(_signal, name): _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
from _blake2 import blake2b
digest, *words = map(os.fsencode, sys.argv[1:])
with open(0, "rb", closefd=False) as file: script = file.read()
if blake2b(b"\\0".join([*words, script])).hexdigest().encode() != digest:
    sys.exit("RuntimeError: a cell has changed the script after it was approved; it was not run")
if hasattr(os, "memfd_create"):
    import fcntl
    fd = os.memfd_create("script", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file: file.write(script)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    with open("/proc/self/environ", "rb") as file: pairs = file.read().split(b"\\0")
    environment = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
else:
    import tempfile
    with tempfile.TemporaryFile() as file:
        file.write(script)
        file.flush()
        fd = os.dup(file.fileno())
    environment = dict(os.environb)
os.lseek(fd, 0, os.SEEK_SET)
os.dup2(fd, 0)
os.execvpe(words[0], words, environment)
"""


def carry(words: tuple[bytes, ...], script: bytes) -> tuple[bytes, ...]:
    """Returns the command that reads a script, and has the program `words` read it if it is this one."""
    digest = blake2b(b"\0".join([*words, script])).hexdigest().encode()
    return (_PYTHON, b"-I", b"-S", b"-c", _CODE, digest, *words)
