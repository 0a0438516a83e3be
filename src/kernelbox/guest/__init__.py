"""The guest: what runs inside a kernel's process, and the template that kernels are forked from."""

# Before all others: what is imported earlier uses the built-in names that cells leave behind.
from kernelbox.guest import _stdlib as _stdlib
