"""`python -m kernelbox`: the command line."""

from __future__ import annotations

from kernelbox.cli import main

if __name__ == "__main__":
    main()
