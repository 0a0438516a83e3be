"""IPython's shell inside a kernel, and how a cell runs in it."""
