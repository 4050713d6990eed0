"""The spool: its writer, and its readers without Spark."""
