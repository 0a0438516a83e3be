"""The tools of the MCP server, and what they share."""
