"""What every room above the wire uses: the errors and the configuration."""
