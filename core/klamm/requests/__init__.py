"""One request, from its frame to its answer. Knows no socket, no selector and no poller."""
