"""Benchmarks of klamm, some of them next to Apache Kafka. Developers run them by hand: `python -m bench.run --help`."""
