#!/usr/bin/env python3
"""Prepares a checkout for development: uv, `.venv`, the locked dependencies, kernelbox in editable mode.

With `--default`, an empty `.venv` gets only what a user's `pip install kernelbox` brings.

Needs nothing but Python 3.11 or newer, touches nothing outside the checkout (uv's own cache aside), and
returns at once when there is nothing to do. The syntax is one that Python 3.6 can read, so that old
interpreters get an answer instead of a SyntaxError.
"""

import argparse
import hashlib
import importlib.util
import os
import shutil
import ssl
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
PYPROJECT = ROOT / "pyproject.toml"
VENV = ROOT / ".venv"
STAMP = VENV / "bootstrap-stamp"
PRIVATE = ROOT / ".bootstrap"
BIN = "Scripts" if os.name == "nt" else "bin"
EXE = ".exe" if os.name == "nt" else ""
VENV_PYTHON = VENV / BIN / f"python{EXE}"
OLDEST_PYTHON = (3, 11)
# Installed into .bootstrap/ only where no uv is found. Any recent one would do; a fixed one repeats.
UV_REQUIREMENT = "uv==0.13.7"


def main() -> int:
    options = parse_arguments()
    try:
        require_python()
        if options.lock:
            rewrite_lock(find_or_install_uv())
        else:
            bootstrap(options.python, "default" if options.default else "development")
    except BootstrapError as exc:
        print(f"bootstrap: error: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bootstrap: interrupted; run it again to finish", file=sys.stderr)
        return 130
    return 0


class BootstrapError(Exception):
    """A failure with a sentence for the person at the terminal: what went wrong, and what to do."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bootstrap.py",
        description="Create .venv with the locked development dependencies and kernelbox in editable mode.",
    )
    parser.add_argument(
        "--python",
        metavar="X",
        help="interpreter for .venv: a version (3.13) or a path; "
        "default: keep what .venv has, or the one running this script",
    )
    parser.add_argument(
        "--default",
        action="store_true",
        help="install only what kernelbox itself needs, unless .venv has everything already",
    )
    parser.add_argument(
        "--lock",
        action="store_true",
        help=f"instead, rewrite {LOCK.name} from pyproject.toml with the newest versions it allows",
    )
    return parser.parse_args()


def require_python() -> None:
    if sys.version_info < OLDEST_PYTHON:
        raise BootstrapError(
            "this is Python {}.{}, and kernelbox needs 3.11 or newer. "
            "Install one: `make` finds python3.11 to python3.13 on PATH, and `python3.12 scripts/bootstrap.py` "
            "works too.".format(*sys.version_info)
        )


def bootstrap(python: "str | None", content: str) -> None:
    wanted = fingerprint()
    ready, built_with, holds = read_stamp()
    same_python = VENV_PYTHON.exists() and python in (None, built_with)
    if same_python and ready == wanted and holds in (content, "development"):
        say(".venv is up to date")
        return

    started = time.monotonic()
    uv = find_or_install_uv()
    # A run that dies half-way must not look finished to the next one.
    STAMP.unlink(missing_ok=True)
    if not same_python:
        interpreter = python or running_interpreter()
        say(f"creating .venv with {interpreter}")
        run(
            [uv, "venv", "--quiet", "--clear", "--no-project", "--python", interpreter, str(VENV)],
            "could not create .venv. `uv python list` shows the interpreters that uv can find; "
            "any other can be given by its path.",
        )
        built_with = python or ""

    pip, target = [uv, "pip"], ["--python", str(VENV_PYTHON)]
    # Where PYTHONDONTWRITEBYTECODE is set, every start of Python would compile the packages anew.
    compiling = ["--compile-bytecode"] if content == "development" or sys.dont_write_bytecode else []
    if content == "default":
        say(f"installing kernelbox and its dependencies, in the versions of {LOCK.name}")
        install = [*pip, "install", *target, *compiling, "--constraints", str(LOCK), "--editable", str(ROOT)]
    else:
        say(f"installing the dependencies of {LOCK.name}")
        install = [*pip, "sync", *target, *compiling, "--require-hashes", str(LOCK)]
    run(  # without --quiet: it shows what it downloads, which may take minutes
        install,
        "could not install the dependencies; the lines above are from uv. If the default package index "
        "cannot be reached, set UV_DEFAULT_INDEX to one that can: uv does not read pip's configuration.",
    )
    if content == "development":
        say("installing kernelbox in editable mode")
        run(
            [*pip, "install", "--quiet", *target, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)],
            "could not install kernelbox itself; the lines above are from its build. Is pyproject.toml sound?",
        )
    if compiling:
        run([str(VENV_PYTHON), "-m", "compileall", "-q", str(ROOT / "src")], "the package does not compile.")
    run(
        [*pip, "check", "--quiet", *target],
        f"{LOCK.name} does not satisfy pyproject.toml. Run `make lock`, then this again.",
    )
    STAMP.write_text(f"{wanted}\n{built_with}\n{content}\n", encoding="utf-8")
    say(f"done in {time.monotonic() - started:.1f} s; try `make help`")


def fingerprint() -> str:
    """Identifies everything that .venv is made from, the folder included: an environment cannot be moved."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (LOCK, PYPROJECT, Path(__file__)):
        try:
            digest.update(path.read_bytes())
        except FileNotFoundError:
            raise BootstrapError(
                f"{path.name} is missing; this does not look like a full checkout of kernelbox. "
                f"`git checkout -- {path.name}` brings it back."
            ) from None
    return digest.hexdigest()


def read_stamp() -> "tuple[str, str, str]":
    """Returns the fingerprint of the last finished run, the `--python` it was given, and what it installed."""
    try:
        ready, built_with, content = STAMP.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return "", "", ""
    return ready, built_with, content


def running_interpreter() -> str:
    # Inside a virtual environment, perhaps the very .venv to be replaced, take the one that it was made from.
    return getattr(sys, "_base_executable", None) or sys.executable


def find_or_install_uv() -> str:
    private_uv = PRIVATE / BIN / f"uv{EXE}"
    for candidate in (shutil.which("uv"), str(private_uv)):
        version = candidate and uv_version(candidate)
        if candidate and version:
            say(f"using {version} ({'from PATH' if candidate != str(private_uv) else PRIVATE.name})")
            return candidate

    say(f"no uv found; installing {UV_REQUIREMENT} into {PRIVATE.name}")
    shutil.rmtree(PRIVATE, ignore_errors=True)
    # Never into the interpreter that runs this: systems mark theirs as externally managed (PEP 668).
    if importlib.util.find_spec("pip"):  # its --target needs no virtual environment, whose making takes seconds
        interpreter, target = sys.executable, ["--no-user", "--target", str(PRIVATE)]
    else:
        interpreter, target = str(PRIVATE / BIN / f"python{EXE}"), []
        run(
            [running_interpreter(), "-m", "venv", str(PRIVATE)],
            "could not create a virtual environment for uv. On Debian and Ubuntu, install the package "
            "python3-venv; or put a uv of your own on PATH.",
        )
    run(
        [interpreter, "-m", "pip", "install", "--disable-pip-version-check", *target, UV_REQUIREMENT],
        "could not install uv. Check the network and pip's index settings, or put a uv of your own on PATH.",
    )
    return str(private_uv)


def uv_version(executable: str) -> "str | None":
    """Returns what a working uv says of itself; being on PATH is no proof: pyenv's shims may lead nowhere."""
    command = [executable, "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return " ".join(answer.stdout.split()[:2])


def rewrite_lock(uv: str) -> None:
    say(f"resolving {LOCK.name}")
    run(
        [
            *[uv, "pip", "compile", "--quiet", "--upgrade", "--universal", "--extra", "dev"],
            *["--python-version", ".".join(map(str, OLDEST_PYTHON)), "--generate-hashes"],
            # The lock says what, not from where: no index, no download address, no path.
            *["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make lock"],
            *[PYPROJECT.name, "--output-file", LOCK.name],
        ],
        "could not resolve the dependencies. The lines above are from uv.",
    )


def run(command: "list[str]", failure: str) -> None:
    """Runs a command; raises BootstrapError if it fails."""
    environment = {**certificate_settings(), "PIP_ROOT_USER_ACTION": "ignore", **os.environ}
    try:
        status = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as exc:
        raise BootstrapError(f"{failure} ({exc})") from exc
    if status != 0:
        raise BootstrapError(f"{failure} (`{' '.join(command)}` ended with status {status})")


def certificate_settings() -> "dict[str, str]":
    """Returns the variables that let pip and uv trust what the system trusts, if the system has certificates.

    Both bring certificates of their own, but only the system knows the authority of a private network.
    """
    places = ssl.get_default_verify_paths()
    known = places.cafile or (places.capath if places.capath and os.listdir(places.capath) else "")
    # macOS and Windows keep theirs where OpenSSL does not look. The second name is that of older versions of uv.
    system = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"} if known or sys.platform in ("darwin", "win32") else {}
    # Newer versions of pip (24.2) ask the system by themselves.
    return {**system, "PIP_CERT": known} if known else system


def say(message: str) -> None:
    print(f"bootstrap: {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
