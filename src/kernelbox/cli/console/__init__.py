"""The console: a terminal on a kernel."""
