"""The programs that cells start: commands, bash, and the runner of a guarded kernel."""
