"""What processes, control groups and directories use, as the operating system tells. It imports nothing of ours."""
