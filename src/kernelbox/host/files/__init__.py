"""Files and directories that are used only through descriptors: homes, keys, locks, sockets, workspaces."""
