"""Spark: its sessions, and the spool as a table."""
