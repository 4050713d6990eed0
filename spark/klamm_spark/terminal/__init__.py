"""`klamm audit tail`, `sql` and `export`: commands that read a spool without Spark and without a JVM."""
