"""Kernels that are not ours: ipykernel, bash_kernel, and one of our own making that does what others only might."""
