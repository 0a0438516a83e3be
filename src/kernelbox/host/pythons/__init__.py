"""Interpreters of kernels: how one is found, what it must have, and the environments that kernelbox makes."""
