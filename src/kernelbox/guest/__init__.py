"""The guest: what runs inside a kernel's process, and the template that kernels are forked from."""
