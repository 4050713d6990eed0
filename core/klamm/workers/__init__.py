"""`[server] workers`: several processes that share the listening sockets of one server, and the parent of them."""
