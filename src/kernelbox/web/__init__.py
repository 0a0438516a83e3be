"""What the servers for HTTP share."""
