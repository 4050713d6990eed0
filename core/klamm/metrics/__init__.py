"""The registry, and what the server counts: requests, connections, failures."""
