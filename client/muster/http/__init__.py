"""Requests to the server: calls as values, the port that sends them, addresses and tokens, sessions."""
