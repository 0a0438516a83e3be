"""What the core decides without the system."""
