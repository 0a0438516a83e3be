"""The two shells that drive the same Execution: one blocks, one runs on an event loop."""
