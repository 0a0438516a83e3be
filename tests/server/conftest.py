"""A server for the tests that need no special one."""

from tests.support.server import key, other, served, service_home

__all__ = ["key", "other", "served", "service_home"]
