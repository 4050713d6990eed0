"""Code for log lines: escaping, formats, files and rate limits."""
