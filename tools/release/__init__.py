"""Facts about a release of Apache Kafka, read from its jars, and their differences from klamm. `kafka_diff` prints
them.
"""
