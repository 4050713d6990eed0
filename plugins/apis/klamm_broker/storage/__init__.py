"""The metadata store and its tables, and `meta.properties`."""
