"""Configs of the broker, of topics and of clients: what is allowed, what is set, how it changes."""
