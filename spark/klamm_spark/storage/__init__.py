"""Where a spool and a lake are kept: folders of this machine, and what Hadoop or PyArrow reach by a URI."""
