"""Benchmarks of klamm beside Apache Kafka; `python -m bench.run --help`."""
