"""Commands that do not touch the kernel's own bash: each has a shell, a directory and variables of its own."""

from __future__ import annotations

import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Seconds that stand for no limit.
NO_LIMIT = 366 * 24 * 3600.0


def fresh_shell(command: str | Sequence[str], cwd: str, env: Mapping[str, str] | None = None) -> str:
    """Returns a command, as text for bash or as words, as a line for a bash cell. It reads nothing from stdin."""
    words = ["bash", "-c", command] if isinstance(command, str) else list(command)
    given = [f"{name}={value}" for name, value in (env or {}).items()]
    return f"(cd {shlex.quote(cwd)} && exec {shlex.join(['env', *given, *words])}) </dev/null"
