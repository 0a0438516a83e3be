"""The errors, the configuration and the text functions that every room above the wire uses."""
