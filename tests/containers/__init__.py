"""The image and the compose file."""
