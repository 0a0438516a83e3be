"""Tools of MCP servers, called from code in cells: the host's side."""
