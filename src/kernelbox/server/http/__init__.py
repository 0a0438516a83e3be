"""The HTTP layer below the routes: listening, HTTP and WebSockets within limits, access, errors, logs, metrics."""
