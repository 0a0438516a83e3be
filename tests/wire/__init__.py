"""The wire, tested without I/O and without a clock."""
