"""Tests that run in the frameworks' environment, where the tests around them start them."""
