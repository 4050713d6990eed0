"""Folders that a server makes at its start."""

from __future__ import annotations

import os
from pathlib import Path

from klamm.runtime.platform import PLATFORM


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that they survive a power cut. Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing if PLATFORM.directory_flags else ():
        descriptor = os.open(folder.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
