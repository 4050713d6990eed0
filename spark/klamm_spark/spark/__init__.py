"""Everything that needs PySpark: sessions, `spark-submit`, and the spool as a table."""
