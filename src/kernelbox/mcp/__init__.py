"""kernelbox as an MCP server: kernels as tools, over stdio or HTTP. No logic of its own about kernels."""
