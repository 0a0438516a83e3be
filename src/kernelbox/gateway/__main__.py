"""`python -m kernelbox.gateway`: serves kernels that end with this process."""

from __future__ import annotations

import argparse
import json
import os
import sys

from kernelbox.base._config import host_variable, set_limits
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._limits import parse_limits
from kernelbox.core._options import choose_sandbox
from kernelbox.server._options import TOKEN_VARIABLE, ServiceOptions
from kernelbox.server._serving import Binding, serve
from kernelbox.server._tokens import Token

# Seconds that cells may go on after a signal to stop: `KernelGateway.stop` waits for ten in all.
_GRACE = 1.0


def main() -> int:
    """Runs a gateway until a signal ends it."""
    options = _parser().parse_args()
    try:
        set_limits(parse_limits("--limit", options.limit))
        token = host_variable(TOKEN_VARIABLE)
        chosen = ServiceOptions(
            workspace=os.getcwd(),
            tokens=(Token.of(token),) if token else (),
            lifetime="process",
            max_kernels=0,
            sandbox=choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level),
        )
        lifeline = sys.stdin.fileno() if options.lifeline else None
        binding = Binding(options.host, options.port)
        return serve(chosen, binding, grace=_GRACE, log_level=options.log_level, lifeline=lifeline)
    except KernelBoxError as exc:
        print(json.dumps({"error": str(exc)}), flush=True)
        print(f"kernelbox: {exc}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernelbox.gateway",
        description="Serves kernels to KernelClient and to Jupyter's front ends. The kernels end with the gateway.",
    )
    parser.add_argument("--host", default="localhost", help="the address to listen at (localhost)")
    parser.add_argument("--port", type=int, default=8888, help="the port; 0 lets the system choose (8888)")
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        default="INFO",
        help="how much is written to stderr, as lines of JSON (INFO)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what each kernel may use, such as memory=512MB; may be repeated (KERNELBOX_LIMIT_*)",
    )
    parser.add_argument("--sandbox", action="store_true", help="confine the kernels: see docs/sandbox.md")
    parser.add_argument("--sandbox-config", metavar="FILE", help="what the sandbox allows; needs --sandbox")
    parser.add_argument(
        "--sandbox-level",
        choices=["native", "srt"],
        help="how it is made: by kernelbox alone, or inside of sandbox-runtime (native); needs --sandbox",
    )
    parser.add_argument("--lifeline", action="store_true", help="end when stdin is closed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
