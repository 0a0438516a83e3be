"""What a kernel writes and shows, on its way to its clients."""
