"""The server: listeners built from their plan, started, reloaded, drained and stopped."""
