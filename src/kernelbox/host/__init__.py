"""The host: our side of the process wall, where the operating system is dealt with."""
