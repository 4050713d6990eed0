"""Splits the test files among runs, each of which takes a share of them."""

import zlib
from pathlib import Path


def is_in_share(path: Path, share: str) -> bool:
    """Return True if the file is in this share, such as "1/3". Its name decides, so that new files move no others."""
    number, total = map(int, share.split("/"))
    return zlib.crc32(path.name.encode()) % total == number - 1
