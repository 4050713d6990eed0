"""Tables and values that several parts of one server read."""
