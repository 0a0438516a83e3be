"""The command line, run as the program that it is."""
