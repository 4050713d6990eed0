"""The wheel and the sdist as a stranger gets them (being written by the h4 person)."""
