"""The server, which builds listeners from their plan, and starts, reloads, drains and stops them."""
