"""Storage of a spool and a lake: folders of this machine, and URIs that Hadoop or PyArrow can reach."""
