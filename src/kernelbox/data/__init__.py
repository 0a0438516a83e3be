"""Values that travel between host and kernel, and how each is written as bytes. Both sides import it."""
