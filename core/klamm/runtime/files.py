"""Functions that write files and make folders so that they survive a power cut."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from klamm.runtime.platform import PLATFORM


def replace_file(path: Path, content: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Write a file under a temporary name in the folder of `path`, and rename it to `path`.

    So a reader sees either the complete new file or the old one. Another user who may write to the folder cannot
    redirect the write, because the temporary name is random and must not exist, not even as a link. The file gets its
    `mode` before it gets the name `path`. With `sync`, the new file survives a power cut. Raises OSError; the old file
    then stays.
    """
    descriptor, name = _new_file(path)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.chmod(descriptor if os.chmod in os.supports_fd else name, mode)
            if sync:
                PLATFORM.sync(descriptor)
        PLATFORM.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory survive a power cut, if the system can: call this after changing them."""
    if PLATFORM.directory_flags:
        descriptor = PLATFORM.open(path, os.O_RDONLY | PLATFORM.directory_flags, 0)
        try:
            PLATFORM.sync(descriptor)
        finally:
            os.close(descriptor)


def check_replaceable(path: Path) -> None:
    """Raise OSError if `replace_file` could not create its new file."""
    descriptor, name = _new_file(path)
    os.close(descriptor)
    name.unlink()


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, so that they survive a power cut. Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_directory(folder.parent)


def _new_file(path: Path) -> tuple[int, Path]:
    """Create a file in the folder of `path` for this user only. Return its descriptor and its path. Raises OSError."""
    # `tempfile` does the same, but its import would take a hundredth of the server's start.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    while True:
        name = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
        with contextlib.suppress(FileExistsError):
            return PLATFORM.open(name, flags, 0o600), name
