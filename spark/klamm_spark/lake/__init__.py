"""The lake: what `ship` writes, what maintains it, and what proves it."""
