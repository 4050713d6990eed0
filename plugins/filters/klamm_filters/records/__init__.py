"""Filters that look at records: `record_validation` and `record_encryption`."""
