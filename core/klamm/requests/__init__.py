"""The handling of one request, from its frame to its answer.

The modules use no sockets, selectors or pollers, so tests drive them with bytes alone.
"""
