"""The version of klamm."""

__version__ = "0.1.0"
"""klamm's own version."""

PLUGIN_API = 1
"""The version of hooks and contracts. It grows with each change to which plugins must be adapted."""
