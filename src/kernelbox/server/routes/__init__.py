"""The routes of the service, and the models of requests and answers."""
