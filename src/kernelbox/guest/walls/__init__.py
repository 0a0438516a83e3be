"""What confines a kernel: its sandbox, its guard and its limits."""
