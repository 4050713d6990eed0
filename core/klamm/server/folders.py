"""Folders that a server makes at its start."""

from __future__ import annotations

from pathlib import Path

from klamm.runtime.files import sync_directory


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that they survive a power cut. Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)
