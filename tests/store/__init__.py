"""Where kernels are kept: files that are lost, damaged, planted or raced for."""
