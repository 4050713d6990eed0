"""Storage of a spool and a lake: folders of this machine, and the URIs of stores that PyArrow supports."""
