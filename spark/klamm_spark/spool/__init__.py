"""The spool: its format, its writer in the server, and its readers, which need no Spark."""
