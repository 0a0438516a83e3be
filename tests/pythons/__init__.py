"""Tests of kernels that run in another interpreter."""
