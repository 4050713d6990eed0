"""`klamm audit compact`: makes small files large, and deletes what nothing needs, while readers and `ship` run on.

Delta merges files, and deletes what was replaced and what killed drivers have left. Small files of the ledger become
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import merge_seals
from klamm_spark.settings.spark import Pipeline

_MOST_GROUP_ROWS: Final = 16_384
"""An event may name thousands of resources, and readers refuse a group of more than a few GiB."""


def run(pipeline: Pipeline, *, keep_hours: float, say: Callable[[str], None]) -> int:
    """Compact `events` and the seals; the exit code. Raises LakeError, and FileSystemError if the store fails."""
    from deltalake import WriterProperties
    from deltalake.exceptions import DeltaError

    lake = Lake.of(pipeline.settings)
    table = lake.table()
    properties = WriterProperties(compression="ZSTD", max_row_group_size=_MOST_GROUP_ROWS)
    try:
        table.optimize.compact(writer_properties=properties)
        # Files that no commit names are those of killed drivers.
        table.vacuum(math.ceil(keep_hours), dry_run=False, full=True)
    except (DeltaError, OSError, ValueError) as error:
        raise LakeError(f"{lake.events} cannot be compacted: {error}") from error
    say(f"{lake.events}: optimized; replaced files are kept for {keep_hours:g} hours")
    merge_seals(lake, say)
    return 0
