"""The topics and their partitions: names, creation, deletion."""
