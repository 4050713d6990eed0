"""Contracts that plugins implement: one file per contract."""
