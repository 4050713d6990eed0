"""The extension `prometheus`, and the commands that look at a running server."""
