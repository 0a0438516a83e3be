"""`completion`: scripts that teach a shell our commands, options and the names of kernels."""

from __future__ import annotations

from argparse import Namespace

from kernelbox.cli._command_table import COMMANDS
from kernelbox.cli._parser import parser_for

_BASH = """\
_kernelbox() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$current"))
        return
    fi
    case "$previous" in
        --name|console)
            # Not by compgen -W, which runs what stands in $(...): a kernel can have any name.
            local name quoted
            while IFS= read -r name; do
                printf -v quoted '%q' "$name"
                [[ "$name" == "$current"* || "$quoted" == "$current"* ]] && COMPREPLY+=("$quoted")
            done < <(kernelbox list --names 2>/dev/null)
            return ;;
        -f|--file|--cwd|--images-dir)
            compopt -o default
            return ;;
    esac
    case "${COMP_WORDS[1]}" in
@CASES@
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _kernelbox kernelbox
"""

_ZSH = """\
_kernelbox() {
    local -a commands
    commands=(
@COMMANDS@
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case $words[CURRENT-1] in
        --name|console) compadd -- ${(f)"$(kernelbox list --names 2>/dev/null)"}; return ;;
        -f|--file|--cwd|--images-dir) _files; return ;;
    esac
    case $words[2] in
@CASES@
    esac
}
compdef _kernelbox kernelbox
"""


def run(options: Namespace) -> int:
    """Runs the command."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](), end="")
    return 0


def _bash() -> str:
    cases = "\n".join(f'        {name}) words="{" ".join(words)}" ;;' for name, words in _words().items())
    return _BASH.replace("@COMMANDS@", " ".join(_words())).replace("@CASES@", cases)


def _zsh() -> str:
    commands = "\n".join(f"        {_quote(f'{command.name}:{command.summary}')}" for command in COMMANDS)
    cases = "\n".join(f"        {name}) compadd -- {' '.join(words)} ;;" for name, words in _words().items())
    return _ZSH.replace("@COMMANDS@", commands).replace("@CASES@", cases)


def _fish() -> str:
    lines = ["complete -c kernelbox -f"]
    for command in COMMANDS:
        lines.append(f"complete -c kernelbox -n __fish_use_subcommand -a {command.name} -d {_quote(command.summary)}")
        here = f"complete -c kernelbox -n '__fish_seen_subcommand_from {command.name}'"
        for action in parser_for(command)._actions:
            names = [f"-{'l' if name.startswith('--') else 's'} {name.lstrip('-')}" for name in action.option_strings]
            if "--names" in action.option_strings or action.dest == "code":
                continue
            value = "" if not names or action.nargs == 0 else " -r"
            if action.dest == "name":
                value = " -x -a '(kernelbox list --names 2>/dev/null)'"
            elif action.dest in ("file", "cwd", "images_dir"):
                value = " -r -F"
            elif not names:
                value = f" -a {_quote(' '.join(action.choices or ()))}"
            lines.append(f"{here} {' '.join(names)}{value}".rstrip())
    return "\n".join(lines) + "\n"


def _words() -> dict[str, list[str]]:
    """Returns what can follow each command: its options, and the values of its arguments."""
    found: dict[str, list[str]] = {}
    for command in COMMANDS:
        actions = [action for action in parser_for(command)._actions if "--names" not in action.option_strings]
        found[command.name] = [word for action in actions for word in (*action.option_strings, *(action.choices or ()))]
    return found


def _quote(text: str) -> str:
    """Quotes for all three shells: none of our texts has a backslash in it."""
    return "'" + text.replace("'", "'\\''") + "'"
