"""Comparisons with other implementations, e.g. the same bytes for the same message."""
