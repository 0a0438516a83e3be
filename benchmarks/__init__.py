"""What kernelbox costs, measured against references in the same run: `python -m benchmarks`."""
