"""C2SP's transparency logs: their tree, tiles, checkpoints and witnesses.

Nothing here knows of seals or lakes: `klamm_spark.lake.seal_log` builds the log of a lake from these parts.
"""
