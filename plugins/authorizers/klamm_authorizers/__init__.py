"""The authorizers `acl` and `static`."""
