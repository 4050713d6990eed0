"""Queries in SQL files, and the views of events that they read."""
