"""The server's log: escaping, formats, files and rate limits of its lines."""
