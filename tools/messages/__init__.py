"""What `tools/generate_messages.py` is made of: descriptions of Kafka's messages in, Python modules out."""
