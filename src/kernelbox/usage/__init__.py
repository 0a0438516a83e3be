"""What processes, control groups and directories use, from the operating system. It imports no other room."""
