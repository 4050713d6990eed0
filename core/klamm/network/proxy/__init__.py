"""The PROXY protocol, with which a proxy sends the address of its client."""
