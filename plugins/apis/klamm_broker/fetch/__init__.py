"""Fetch: sessions, limits, and the wait for more data."""
