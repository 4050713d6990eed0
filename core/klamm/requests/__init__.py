"""The handling of one request, from its frame to its answer. It does not use sockets, selectors or pollers."""
