"""Tests of real clients against a real server: klamm, or Apache Kafka itself with `KLAMM_INTEROP_TARGET=kafka`."""
