"""Policies of sandboxed kernels: the configuration file, and what it comes to here."""
