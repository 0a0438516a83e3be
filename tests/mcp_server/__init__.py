"""kernelbox as an MCP server, spoken to as clients do."""
