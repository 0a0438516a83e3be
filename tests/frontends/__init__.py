"""Jupyter's front ends as clients of our kernels."""
