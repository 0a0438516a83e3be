"""What kernels may use, with and without control groups."""
