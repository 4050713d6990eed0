"""Configs of the broker, of topics and of clients: allowed keys and values, current values, changes."""
