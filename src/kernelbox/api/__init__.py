"""The Python faces: the synchronous functions and the asynchronous CodeExecutor. No logic of their own."""
