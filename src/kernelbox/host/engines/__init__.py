"""The engines: how each kind of kernel is started, reached, watched and ended."""
