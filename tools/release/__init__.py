"""What a release of Apache Kafka has, read from its jars, and how klamm differs."""
