"""The setting `[server] workers`: several processes that share a server's listening sockets, and their parent."""
