"""Calls that the application accepted, and that are accepted again without asking."""

from __future__ import annotations

from kernelbox.core.approvals._approval_policy import ApprovalRule, as_json
from kernelbox.host._engines import engine_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelbox.host.process._process import ProcessIdentity
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._messages import Ask


class Memory:
    """Accepted calls: exactly the same call again, or calls whose arguments match patterns."""

    def __init__(self) -> None:
        self._calls: set[tuple[str, str, str]] = set()
        self._rules: dict[tuple[str, str], dict[str, ApprovalRule]] = {}  # by tool, and by the text of the patterns

    def __repr__(self) -> str:
        return f"<Memory of {len(self._calls)} calls, {sum(map(len, self._rules.values()))} rules>"

    def keep(self, ask: Ask, patterns: Mapping[str, object] | None) -> None:
        """Remembers an accepted call; with patterns, all calls of the same tool that match them."""
        if patterns is None:
            self._calls.add((ask.server_name, ask.tool_name, as_json(ask.tool_args)))
            return
        rules = self._rules.setdefault((ask.server_name, ask.tool_name), {})
        rules[as_json(patterns)] = ApprovalRule(action="allow", args=patterns)

    def covers(self, ask: Ask) -> bool:
        """Tells whether a call was accepted before."""
        rules = self._rules.get((ask.server_name, ask.tool_name), {})
        if any(rule.matches(ask.server_name, ask.tool_name, ask.tool_args) for rule in rules.values()):
            return True
        return bool(self._calls) and (ask.server_name, ask.tool_name, as_json(ask.tool_args)) in self._calls


class Sessions:
    """A memory for each kernel process. It ends with the process: a restarted kernel has none."""

    def __init__(self) -> None:
        self._memories: dict[tuple[str, ProcessIdentity | None], tuple[KernelRecord, Memory]] = {}

    def __repr__(self) -> str:
        return f"<Sessions of {len(self._memories)} kernels>"

    def keep(self, record: KernelRecord, ask: Ask, patterns: Mapping[str, object] | None) -> None:
        """Remembers an accepted call for as long as the kernel's process lives."""
        process = _process(record)
        if process not in self._memories:
            self._forget_the_dead()
        self._memories.setdefault(process, (record, Memory()))[1].keep(ask, patterns)

    def covers(self, record: KernelRecord, ask: Ask) -> bool:
        """Tells whether a call was accepted before in the same process."""
        remembered = self._memories.get(_process(record))
        return remembered is not None and remembered[1].covers(ask)

    def _forget_the_dead(self) -> None:
        for process, (record, _) in list(self._memories.items()):
            if not engine_named(record.engine).is_alive(record):
                self._memories.pop(process, None)


# For the synchronous API, whose calls share no object that could hold them.
shared_sessions = Sessions()


def _process(record: KernelRecord) -> tuple[str, ProcessIdentity | None]:
    return record.kernel_id, record.process
