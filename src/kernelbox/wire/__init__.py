"""The wire: what host and guest say to each other, as values. No I/O, no clock."""
