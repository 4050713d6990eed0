"""Modules of `tools/generate_messages.py`, which turns descriptions of Kafka's messages into Python modules."""
