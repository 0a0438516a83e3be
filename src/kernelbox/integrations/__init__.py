"""Places for kernels in agent frameworks: `from kernelbox.integrations.langchain import KernelboxTool`, and others.

Each module imports its framework, which kernelbox does not install, and only that one.
"""
