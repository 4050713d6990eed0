"""`klamm audit compact`: merges small files, and deletes files that nothing needs, while readers and `ship` run.

In the table of events, Delta merges files, and deletes replaced files and the files of killed drivers. The small files
of the ledger are merged into one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.files import TableFile, files_of, open_file
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.parquet import check_rows
from klamm_spark.lake.seals import merge_seals
from klamm_spark.settings.spark import Pipeline

_TARGET_BYTES: Final = 100 * 1024**2
"""The size of a file after `compact`. Files that are already larger stay unchanged."""
_COMMIT_INTERVAL_S: Final = 1
"""The minimum time between two commits. One commit for all hours could be larger than readers accept."""
_MOST_GROUP_ROWS: Final = 16_384
"""The maximum number of rows in a group. An event may have thousands of resources, and readers refuse large groups."""


def run(pipeline: Pipeline, *, keep_hours: float, say: Callable[[str], None]) -> int:
    """Compact the table of events and the ledger. Return the exit code.

    Raises LakeError, and FileSystemError if the store fails.
    """
    from deltalake import WriterProperties
    from deltalake.exceptions import DeltaError

    lake = Lake.of(pipeline.settings)
    table = lake.table(to_change=True)
    _check_small(files_of(lake, table=table))
    properties = WriterProperties(compression="ZSTD", max_row_group_size=_MOST_GROUP_ROWS)
    try:
        table.optimize.compact(
            target_size=_TARGET_BYTES, writer_properties=properties, min_commit_interval=_COMMIT_INTERVAL_S
        )
        # This also deletes files that no commit names, because their driver was killed.
        table.vacuum(math.ceil(keep_hours), dry_run=False, full=True)
    except (DeltaError, OSError, ValueError) as error:
        raise LakeError(f"{lake.events} cannot be compacted: {error}") from error
    say(f"{lake.events}: optimized; replaced files are kept for {keep_hours:g} hours")
    merge_seals(lake, say)
    return 0


def _check_small(files: Sequence[TableFile]) -> None:
    """Raise LakeError if a file that Delta would merge is too large for the memory. Delta itself has no limit."""
    small = [file for file in files if (file.size_bytes or 0) < _TARGET_BYTES]
    counts = Counter(file.hour_us for file in small)
    for file in small:
        try:
            if counts[file.hour_us] > 1:
                with open_file(file) as parquet:
                    check_rows(parquet, are_kept=False)
        except (OSError, ValueError) as error:
            raise LakeError(f"{file.path} cannot be read: {' '.join(str(error).split())}") from error
