"""The audit within the server: it turns requests and other events into lines of a spool and records of a topic."""
