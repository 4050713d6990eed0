"""Queries in SQL files, over the events of a spool or a lake."""
