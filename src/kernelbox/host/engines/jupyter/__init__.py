"""The engine of Jupyter kernels: any kernelspec, spoken to over ZeroMQ."""
