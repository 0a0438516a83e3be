"""What callers run: their kernels, cells, jobs and streams of events."""
