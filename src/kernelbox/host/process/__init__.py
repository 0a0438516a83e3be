"""Processes of the operating system: their identity, what they inherit, and the control groups that limit them."""
