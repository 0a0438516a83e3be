"""Agent frameworks, each at its newest version, with our kernels in their places."""
