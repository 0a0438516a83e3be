"""The engine of our own kernels: forked from a warm template, or started cold; reached over one Unix socket."""
