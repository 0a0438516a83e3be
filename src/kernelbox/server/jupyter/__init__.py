"""Jupyter's front ends as clients of our kernels: their messages, translated, over WebSockets and ZeroMQ."""
