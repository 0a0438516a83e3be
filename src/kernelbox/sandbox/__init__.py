"""Policies of sandboxed kernels: the configuration file, and the mounts and filters it means on this machine."""
