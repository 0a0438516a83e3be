"""Sandboxed kernels, and attacks on their sandbox."""
