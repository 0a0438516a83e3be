"""The commands: a module each, imported when its command runs."""
