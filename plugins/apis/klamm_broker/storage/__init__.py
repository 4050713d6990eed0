"""The metadata store and what is kept in it, and `meta.properties`."""
