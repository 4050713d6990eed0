"""The handler set `control`: the four requests that brokers got from their controller before Kafka 4."""
