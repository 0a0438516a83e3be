"""The core: kernels and their lives, the orders of an execution, and the gate that decides what cells ask for."""
