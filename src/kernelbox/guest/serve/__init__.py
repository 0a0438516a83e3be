"""How a kernel serves its clients: requests, queries, and questions to the host."""
