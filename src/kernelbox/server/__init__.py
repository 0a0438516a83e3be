"""The HTTP service: REST as KernelBox 0.1 had it, streams, jobs, files; `app.py` has the application."""
