"""What programs written for ipybox and for KernelBox 0.1 rely on."""
