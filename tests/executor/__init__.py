"""CodeExecutor, and what it holds for approval."""
