"""The server's part of the audit: from observed requests to lines of a spool, and to a topic."""
