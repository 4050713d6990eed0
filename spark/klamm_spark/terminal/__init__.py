"""Commands of `klamm audit` that need neither Spark nor a JVM: `tail`, `sql`, `export`, `iceberg`, `publish`, `check`
etc.
"""
