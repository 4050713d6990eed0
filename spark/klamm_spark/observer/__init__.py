"""What the server runs: from observed requests to lines of a spool, and to a topic."""
