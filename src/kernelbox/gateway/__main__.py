"""`python -m kernelbox.gateway`: serves kernels that end with this process."""

from __future__ import annotations

import argparse
import json
import os
import sys

from kernelbox.base._command_line import LOG_LEVELS, add_flag, add_limit_option, add_sandbox_options
from kernelbox.base._config import set_limits
from kernelbox.base._endpoint import check_port
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._limits import parse_limits
from kernelbox.core._options import choose_sandbox
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server._serving import serve
from kernelbox.server.http._binding import Binding
from kernelbox.server.http._callers import tokens_from_env

# Seconds that cells may go on after a signal to stop: `KernelGateway.stop` waits for ten in all.
_GRACE = 1.0


def main() -> int:
    """Runs a gateway until a signal ends it."""
    options = _parser().parse_args()
    try:
        set_limits(parse_limits(options.limit))
        chosen = ServiceOptions(
            workspace=os.getcwd(),
            tokens=tokens_from_env(),
            lifetime="process",
            max_kernels=0,
            sandbox=choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level),
        )
        lifeline = sys.stdin.fileno() if options.lifeline else None
        binding = Binding(options.host, check_port(options.port))
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
        choices=LOG_LEVELS,
        default="INFO",
        help="how much is written to stderr, as lines of JSON (INFO)",
    )
    add_limit_option(parser)
    add_sandbox_options(parser, "the kernels")
    add_flag(parser, "--lifeline", "end when stdin is closed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
