"""The commands: what each is for, where it is implemented, and how `--help` introduces them."""

from __future__ import annotations

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Command:
    """One command. Its module is imported when the command runs, so no command pays for the others."""

    name: str
    summary: str
    home: str
    aliases: tuple[str, ...] = ()

    def load(self) -> Callable[[Namespace], int]:
        """Returns the function that runs it."""
        import importlib

        module, _, function = self.home.partition(":")
        run: Callable[[Namespace], int] = getattr(importlib.import_module(f"kernelbox.cli.commands.{module}"), function)
        return run


COMMANDS = (
    Command("run", "run code in a kernel and print what it prints", "_exec:run"),
    Command("exec", "run code in a kernel and print the result as JSON", "_exec:run"),
    Command("create", "open a kernel under a name that is free", "_lifecycle:create"),
    Command("list", "show all kernels", "_lifecycle:show_all", ("ls", "ps")),
    Command("status", "show one kernel; exits 0 if it is alive", "_lifecycle:show_one"),
    Command("interrupt", "stop what a kernel is running; its variables are kept", "_lifecycle:interrupt"),
    Command("restart", "start a kernel anew under its name and id; variables are lost", "_lifecycle:restart"),
    Command("destroy", "end a kernel, its child processes and its files", "_lifecycle:destroy", ("rm",)),
    Command("wipe", "destroy all kernels", "_lifecycle:wipe"),
    Command("cache", "list the environments that --with has made, or remove them", "_cache:run"),
    Command("branch", "copy a live kernel, with its variables, into new kernels", "_time_travel_commands:branch"),
    Command("checkpoint", "freeze a copy of a kernel, to go back to", "_time_travel_commands:checkpoint"),
    Command("checkpoints", "show a kernel's checkpoints, and the memory of each", "_time_travel_commands:checkpoints"),
    Command("rollback", "set a kernel back to a checkpoint; files are not undone", "_time_travel_commands:rollback"),
    Command("drop", "end a checkpoint, and give its memory back", "_time_travel_commands:drop"),
    Command(
        "promote", "put a branch in the place of the kernel that it was copied from", "_time_travel_commands:promote"
    ),
    Command("variables", "show what lives in a kernel: names, types, sizes, values", "_inspect:variables"),
    Command("history", "show the cells that a kernel has run", "_inspect:history"),
    Command("files", "list, read and write files as a kernel sees them", "_inspect:files"),
    Command("top", "watch what kernels do and use; keys interrupt and destroy them", "_top:run"),
    Command("export", "print a kernel's cells and outputs as a Jupyter notebook", "_inspect:export"),
    Command("console", "talk to a kernel in a terminal", "_lifecycle:console"),
    Command("mcp", "serve kernels to an MCP client, such as Claude Code or Cursor", "_mcp:run"),
    Command("serve", "serve kernels over HTTP: REST, streams, jobs", "_serve:run"),
    Command("jupyter", "let Jupyter use kernelbox: install or remove a kernelspec", "_jupyter:run"),
    Command("logs", "show what a kernel's process left in its log", "_lifecycle:logs"),
    Command("tools", "add MCP servers whose tools code can call; list or remove them", "_manage_tools:run"),
    Command("tour", "see what kernels can do, step by step, with real ones", "_tour:run"),
    Command("doctor", "check the installation, and say how to fix it", "_doctor:run"),
    Command("version", "show the versions in use", "_lifecycle:version"),
    Command("completion", "print a completion script for a shell", "_completion:run"),
)

# In the order in which people meet them.
_GROUPS = {
    "run code": "run exec console",
    "look": "list status top variables history files logs export",
    "open and end": "create interrupt restart destroy wipe",
    "go back in time": "checkpoint checkpoints rollback drop branch promote",
    "connect": "serve mcp jupyter tools",
    "set up": "tour doctor cache completion version",
}

# What `kernelbox COMMAND --help` shows at its end.
EXAMPLES = {
    "run": """\
  kernelbox run demo "x = 21"
  kernelbox run demo "x * 2"
  kernelbox run demo --bash "ls -l"
  kernelbox run demo -f analysis.py
  cat analysis.py | kernelbox run demo
""",
    "exec": """\
  kernelbox exec --name demo "x = 21"
  kernelbox exec demo "x * 2" | jq -r .return_value
  kernelbox exec demo --bash "echo hello"
  kernelbox exec demo --timeout 30 "some_long_call()"
  kernelbox exec demo -f analysis.py --stream
  cat analysis.py | kernelbox exec demo
  kernelbox exec demo -- "-x"                 # code that begins with a dash
""",
    "create": """\
  kernelbox create demo
  kernelbox create demo --cwd ~/project --limit memory=2GB --limit cpu=10min
""",
    "list": """\
  kernelbox list
  kernelbox list --refresh            # and ask each for a sign of life
  kernelbox list --all                # those of all directories
  kernelbox list --tree               # branches below their originals
  kernelbox list | jq -r '.kernels[] | select(.stale).name'
""",
    "status": """\
  kernelbox status demo
  kernelbox status demo > /dev/null && echo alive
""",
    "interrupt": """\
  kernelbox interrupt demo
""",
    "restart": """\
  kernelbox restart demo
""",
    "destroy": """\
  kernelbox destroy demo
  kernelbox destroy demo other
""",
    "wipe": """\
  kernelbox wipe
  kernelbox wipe --stale              # end those not used for long
  kernelbox wipe --stale --all        # in all directories
""",
    "cache": """\
  kernelbox cache
  kernelbox cache --clean
""",
    "branch": """\
  kernelbox branch demo try-1 try-2
  kernelbox run try-1 "x = clean(x)"          # "demo" and "try-2" do not notice
  kernelbox promote try-1                     # keep this one: it becomes "demo"
""",
    "checkpoint": """\
  kernelbox checkpoint demo loaded
  kernelbox run demo "x = clean(x)"           # went wrong?
  kernelbox rollback demo loaded
""",
    "checkpoints": """\
  kernelbox checkpoints demo
  kernelbox checkpoints demo | jq -r '.checkpoints[].label'
""",
    "rollback": """\
  kernelbox rollback demo                     # to the last checkpoint
  kernelbox rollback demo 2                   # to another, by number or label
""",
    "drop": """\
  kernelbox drop demo 2
  kernelbox drop demo loaded
""",
    "promote": """\
  kernelbox promote try-1
""",
    "variables": """\
  kernelbox variables demo
  kernelbox variables demo | jq -r '.variables[].name'
""",
    "history": """\
  kernelbox history demo
  kernelbox history demo --last 5
""",
    "files": """\
  kernelbox files demo
  kernelbox files demo data
  kernelbox files demo --read plot.png > plot.png
  kernelbox files demo --write data.csv < data.csv
""",
    "top": """\
  kernelbox top
  kernelbox top --json | jq '.kernels[].usage'
""",
    "export": """\
  kernelbox export demo > demo.ipynb
""",
    "console": """\
  kernelbox console
  kernelbox console demo
""",
    "mcp": """\
  kernelbox mcp --print-config cursor     # what to paste there
  kernelbox mcp --workspace ~/project     # as clients start it
  kernelbox mcp --toolset kernels,files   # named kernels, jobs, files
  kernelbox mcp --policy approvals.toml   # what may run without asking
  kernelbox mcp --http 127.0.0.1:8765     # prints the URL and a token
""",
    "serve": """\
  kernelbox serve                     # http://127.0.0.1:8080, /docs explains it
  KERNELBOX_TOKEN=$(openssl rand -hex 24) kernelbox serve --host 0.0.0.0
  kernelbox serve --uds /run/user/1000/kernelbox.sock
""",
    "jupyter": """\
  kernelbox jupyter install --sys-prefix  # for this environment's Jupyter
  kernelbox jupyter install --kernel demo # notebooks that share one kernel
  kernelbox jupyter remove
""",
    "logs": """\
  kernelbox logs demo
  kernelbox logs --template --lines 50
""",
    "tools": """\
  kernelbox tools add time -- uvx mcp-server-time
  kernelbox tools add issues --url https://a.example/mcp --header 'X-Key=${KEY}'
  kernelbox tools list
  kernelbox tools refresh time
  kernelbox run demo --approve all "import mcptools; print(mcptools)"
""",
    "tour": """\
  kernelbox tour
  kernelbox tour --no-pauses                   # as `make demo` runs it
""",
    "doctor": """\
  kernelbox doctor
""",
    "version": """\
  kernelbox version
""",
    "completion": """\
  eval "$(kernelbox completion bash)"         # in ~/.bashrc
  eval "$(kernelbox completion zsh)"          # in ~/.zshrc, after compinit
  kernelbox completion fish | source          # in ~/.config/fish/config.fish
""",
}

_INTRODUCTION = """\
usage: kernelbox COMMAND [OPTION ...]

Persistent, named Python kernels. Variables, imports and files in memory stay
in the kernel from one call to the next, even between processes.

  kernelbox run demo "x = [1, 2, 3]"        # a new name opens a kernel
  kernelbox run demo "sum(x)"               # finds x, and prints 6
  kernelbox exec demo "sum(x)" | jq .value  # the whole result, as JSON
  kernelbox destroy demo
"""

_EXPLANATION = """
`kernelbox COMMAND --help` explains a command and shows examples.

On a terminal answers are for people, in a pipe they are JSON; --text and --json
choose. The exit status is 0 for success, 1 for a failure, 2 for wrong usage and
130 after Ctrl-C. Kernels live in .kernelbox/ of the current directory, or the
nearest one above it; KERNELBOX_HOME names another place.
"""


def find_command(word: str) -> Command | None:
    """Returns the command with this name or alias."""
    return next((command for command in COMMANDS if word == command.name or word in command.aliases), None)


def top_help() -> str:
    """Returns the text of `kernelbox --help`. It is made without argparse, to be quick."""
    listed = ""
    for title, names in _GROUPS.items():
        listed += f"\n{title}:\n"
        for command in filter(None, map(find_command, names.split())):
            listed += f"  {', '.join((command.name, *command.aliases)):<14}{command.summary}\n"
    return _INTRODUCTION + listed + _EXPLANATION
