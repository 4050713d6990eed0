"""What a plugin implements: one file per contract."""
