"""Cells as the core sees them: the orders of an execution, the attempts of a retry, and their export."""
