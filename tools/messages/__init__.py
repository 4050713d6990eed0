"""Modules of `tools/generate_messages.py`: descriptions of Kafka's messages in, Python modules out."""
