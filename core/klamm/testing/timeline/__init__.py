"""`Timeline`: what clients asked of a server, and what happened to it, up to a moment; as text and as an HTML page."""
