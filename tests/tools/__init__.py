"""Tools of MCP servers, called from code in cells."""
