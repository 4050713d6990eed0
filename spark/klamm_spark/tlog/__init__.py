"""C2SP's transparency logs: their tree, tiles, checkpoints and witnesses. Nothing here knows of seals or lakes."""
