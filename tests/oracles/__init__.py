"""Other implementations as judges: the same bytes for the same message."""
