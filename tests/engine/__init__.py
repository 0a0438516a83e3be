"""Our own kernels, through the synchronous functions: cells, output, interrupts, death, templates."""
