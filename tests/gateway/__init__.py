"""The gateway process and its client."""
