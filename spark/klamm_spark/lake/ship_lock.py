"""`only_writer`: lets only one `ship` at a time write to a lake. The lock is on a file and ends with the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from klamm.runtime import PLATFORM
from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake
from klamm_spark.storage.files import SpoolFiles

_NAME: Final = ".ship.lock"


@contextmanager
def only_writer(lake: Lake) -> Iterator[None]:
    """Hold the lock while the block runs. Raises LakeError if another process or thread has it.

    Object stores have no locks, so a lake at a URI is not protected.
    """
    if not isinstance(lake.root, Path):
        yield
        return
    lake.root.mkdir(parents=True, exist_ok=True)
    place, files = lake.root / _NAME, SpoolFiles()
    try:
        descriptor = files.lock(place)
    except BlockingIOError:
        owner = place.read_text("ascii", "replace").strip()
        raise LakeError(
            f"process {owner or 'unknown'} writes to {lake.root} already: two at a time would repeat events"
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        PLATFORM.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        files.close(descriptor)
