"""How both sides of an approval tell real questions and answers from those that a cell forges.

A cell can write to its client's socket, and a cell of the superuser can write in the client's name. So each connection
has a key, which the host chooses and sends with each request. The numbers of questions are derived from it, and so is
the fingerprint of the question in each answer. Without the key a cell can guess neither.

The process of a guarded kernel is not trusted at all. Its runner has its own key, which it tells hosts but not the
kernel. It starts a command only if the answer carries a seal made with that key.
"""

from __future__ import annotations

from _blake2 import blake2b

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import to_json
from kernelbox.wire._messages import SHELL_SERVER, Answer, Ask

keep_builtins(globals())

# A cell that asks in the kernel's name has to guess one number among 2**48.
_NUMBER_BYTES = 6

# Bytes of a runner's key: the most that blake2b uses.
RUNNER_KEY_SIZE = 64


class Questions:
    """The questions of one execution, as the host receives them."""

    def __init__(self, key: str, execution_id: str, runner_key: bytes = b"") -> None:
        self._key = key
        self._runner_key = runner_key
        self._execution_id = execution_id
        self._count = 0
        self._open: dict[int, tuple[str, str]] = {}

    def __repr__(self) -> str:
        return f"<Questions of {self._execution_id} open={len(self._open)}>"

    def take(self, ask: Ask) -> bool:
        """Tells whether a question is the next one; any other is forged."""
        self._count += 1
        if ask.id != self._execution_id or ask.ask != number_of(self._key, ask.id, self._count):
            return False
        sealed = self._runner_key and ask.server_name == SHELL_SERVER
        seal = seal_of(self._runner_key, ask.id, ask.ask, ask.tool_name, ask.tool_args) if sealed else ""
        self._open[ask.ask] = fingerprint(self._key, ask), seal
        return True

    def sign(self, answer: Answer) -> None:
        """Adds the fingerprint of its question to an answer, and the seal if it accepts a command."""
        answer.fingerprint, seal = self._open.pop(answer.ask, ("", ""))
        answer.seal = seal if answer.accepted else ""


def number_of(key: str, execution_id: str, count: int) -> int:
    """Returns the number of an execution's question, by its position."""
    return int.from_bytes(_hash(key, ["number", execution_id, count], _NUMBER_BYTES), "big")


def fingerprint(key: str, ask: Ask) -> str:
    """Returns what identifies a question, as the host has read it, in its answer."""
    fields = [ask.id, ask.ask, ask.server_name, ask.tool_name, ask.tool_args]
    return _hash(key, ["question", *fields], 16).hex()


def seal_of(key: bytes, execution_id: str, number: int, tool_name: str, tool_args: object) -> str:
    """Returns the proof for a runner that a host has accepted exactly this command, once."""
    text = to_json(["seal", execution_id, number, tool_name, _in_order(tool_args)])
    return blake2b(text.encode(), key=key, digest_size=32).hexdigest()


def _in_order(value: object) -> object:
    """Returns the same value with sorted names: the order in a dict depends on who made it."""
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def _hash(key: str, values: list[object], size: int) -> bytes:
    return blake2b(to_json(values).encode(), key=key.encode(), digest_size=size).digest()
