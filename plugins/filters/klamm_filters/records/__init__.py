"""The filters that read records: `record_validation` and `record_encryption`."""
