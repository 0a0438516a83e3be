"""Kernels that cannot start programs, and attacks on their guard."""
