"""What happened in a soak: counted, and compared with what was promised."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

# Seconds after a template was killed or stopped in which a start may fail.
_AFTERMATH = 30.0


class Ledger:
    """Takes the clients' reports and the kills, and says which promises were broken."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.operations: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.excused = 0
        self.slowest: dict[str, float] = {}
        self._lives: dict[str, set[str]] = {}
        self._endings: Counter[str] = Counter()
        self._killed: set[int] = set()
        self._template_hit = -_AFTERMATH

    def take(self, client: int, report: Mapping[str, object]) -> None:
        """Takes a line of a client."""
        name = str(report.get("name", ""))
        match report["kind"]:
            case "end":
                what, seconds = str(report["what"]), float(str(report["seconds"]))
                self.operations[what] += 1
                self.outcomes[f"{what}: {report['outcome']}"] += 1
                self.slowest[what] = max(seconds, self.slowest.get(what, 0.0))
            case "life":
                self._lives.setdefault(name, set()).add(str(report["life"]))
            case "told":
                self._tell(name, report)
            case "ended life":
                self._endings[name] += 1
            case "not started":
                self.losses["starts that failed, and said so"] += 1
                if time.monotonic() - self._template_hit > _AFTERMATH:
                    self.breach(f"{name} was not started, and no template had been hit: {report['cause']}")
            case "broken":
                self.breach(f"client {client}: {report['sentence']}")

    def _tell(self, name: str, report: Mapping[str, object]) -> None:
        self._endings[name] += 1
        self.losses["losses told"] += 1
        pid, cause = int(str(report["pid"])), str(report["cause"])
        ours = ("did not stop", "destroyed", "restarted", "cut short")
        if report["own"] and pid and pid not in self._killed and not any(words in cause for words in ours):
            self.breach(f"{name} was said to have died, and nobody had killed pid {pid}: {cause}")

    def kill(self, kind: str, pid: int) -> None:
        """Notes that the soak itself struck a process."""
        self.kills[kind] += 1
        self._killed.add(pid)
        if kind.startswith("template"):
            self._template_hit = time.monotonic()

    def excuse(self, name: str) -> None:
        """Notes that a client was killed during an operation: what it was told then, nobody can know."""
        self._endings[name] += 1
        self.excused += 1

    def breach(self, sentence: str) -> None:
        self.broken.append(sentence)
        print(f"BROKEN: {sentence}", flush=True)

    def compare_lives(self) -> None:
        """Checks that no kernel of a shared name was replaced without anybody hearing of it."""
        for name, lives in self._lives.items():
            if len(lives) - 1 > self._endings[name]:
                self.breach(f"{name} had {len(lives)} lives, and only {self._endings[name]} ends were told of")

    def summary(self) -> str:
        lines = [
            f"{sum(self.operations.values()):,} operations: {_show(self.operations)}",
            f"outcomes: {_show(self.outcomes)}",
            f"slowest: {', '.join(f'{what} {seconds:.1f} s' for what, seconds in sorted(self.slowest.items()))}",
            f"kills: {_show(self.kills)}",
            f"{sum(map(len, self._lives.values())):,} lives of {len(self._lives):,} names; {_show(self.losses)}",
            f"{self.excused:,} clients were killed during an operation, with what they may have been told",
            f"{len(self.broken)} broken invariants",
            *(f"  {sentence.partition(chr(10))[0]}" for sentence in self.broken),
        ]
        return "\n".join(lines)


def _show(counter: Counter[str]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in sorted(counter.items())) or "none"
