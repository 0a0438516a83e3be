"""Approvals: which tool calls and shell commands of a cell may run, and who decides it."""
