"""Code that all log lines share: escaping, rate limits, the slow-request log."""
