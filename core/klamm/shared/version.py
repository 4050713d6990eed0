"""The version of klamm."""

__version__ = "0.1.0"
"""The version of this klamm."""

PLUGIN_API = 1
"""The version of hooks and contracts. It grows with a change that a plugin has to follow."""
