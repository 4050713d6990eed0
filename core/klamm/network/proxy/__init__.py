"""The PROXY protocol: the client's address when it comes through a proxy."""
