"""Programs written for E2B, on local kernels."""
