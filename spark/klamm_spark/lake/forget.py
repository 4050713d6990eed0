"""`klamm audit forget`: deletes old events from the lake, by age and kind, and keeps the proofs of all other events.

It first writes records of the events that it is going to delete. If `forget` is killed then, `verify` names it, and the
next `forget` completes it. The deletion works on the same commit of the table as the records. If `ship` or `compact`
commits old events meanwhile, the deletion fails. So nothing is deleted that no record names. `audit_gap` events stay:
they name no client, and explain why numbers are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.events.event import FORGETTABLE
from klamm_spark.lake.files import TableFile, files_of
from klamm_spark.lake.forgotten import (
    Forgotten,
    Record,
    digests_sha256,
    keep_key,
    read_forgotten,
    write_records,
)
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ranges import Ranges
from klamm_spark.lake.scanned import CHANGED, Query, answer
from klamm_spark.lake.seals import read_seals
from klamm_spark.lake.tasks import Tasks
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import Seal, day_of
from klamm_spark.spool.signatures import SealSigner


def run(
    pipeline: Pipeline,
    *,
    before_us: int,
    kinds: Sequence[str] = (),
    key: Path | None = None,
    say: Callable[[str], None],
) -> int:
    """Forget the events that are older than `before_us`, of these `kinds` or of all kinds. Return the exit code.

    Without `kinds`, old lines of the quarantine are deleted too. Raises LakeError, KeyFileError.
    """
    from deltalake.exceptions import DeltaError

    lake = Lake.of(pipeline.settings)
    lake.require_events()
    signer = None if key is None else SealSigner(key)
    table = lake.table(to_change=True)
    rule = _Rule(str(table.metadata().id), before_us, ", ".join(kinds) or "all", time.time_ns() // 1000)
    names = ", ".join(f"'{kind}'" for kind in kinds or FORGETTABLE)
    old = f"(time_us < {before_us} AND kind IN ({names}))"
    files = [file for file in files_of(lake, table=table) if file.hour_us is None or file.hour_us < before_us]
    old_rows = old if kinds else f"{old} OR (is_bad AND shipped_us < {before_us})"
    _check_count(lake, files, old_rows)
    count = _record(lake, [Query(file, _OLD_ROWS.format(old_rows)) for file in files], signer, rule)
    if count:
        # With the date in the condition, Delta reads only the files of these days.
        old = f"(date <= '{day_of(before_us)}' AND {old})"
        bad = f"(date IS NULL AND shipped_time < to_timestamp_micros({before_us}))"
        try:
            table.delete(old if kinds else f"{old} OR {bad}")
        except (DeltaError, OSError, ValueError) as error:
            raise LakeError(f"{lake.events}: {error}: run klamm audit forget again") from error
    say(f"{lake.events}: {count:,} events were forgotten; klamm audit compact deletes their files when it is due")
    say(f"the records are of the lake {rule.lake}: klamm audit verify --lake-id {rule.lake} takes no others")
    return 0


_OLD_ROWS: Final = f"""
SELECT segment, count(*), count(*) FILTER (digest = '{CHANGED}'), list(DISTINCT digest), list(DISTINCT seq)
FROM rows WHERE {{}} GROUP BY segment"""
"""A query for the old rows of each segment: their number, how many of them were changed, and their digests and numbers.
"""


_MOST_FILES: Final = 16_384
"""The maximum number of files in one deletion. Its commit has 2 to 4 KB for each file."""


def _check_count(lake: Lake, files: Sequence[TableFile], old: str) -> None:
    """Raise LakeError if too many files have old rows, because the commit would be too large to be read."""
    if len(files) <= _MOST_FILES:
        return
    found = Tasks().run(answer, [Query(file, f"SELECT 1 FROM rows WHERE {old} LIMIT 1") for file in files])
    count = sum(map(bool, found))
    if count > _MOST_FILES:
        raise LakeError(
            f"{lake.events}: {count:,} files have old events, and a commit may be of {_MOST_FILES:,} at most: run "
            "klamm audit compact first, or forget in steps: the oldest events first"
        )


class _Old(NamedTuple):
    """A row of the answer to `_OLD_ROWS`."""

    segment: str
    lines: int
    changed: int
    digests: list[str]
    seqs: list[int | None]


class _Rule(NamedTuple):
    """The rule that all records of one run have."""

    lake: str
    before_us: int
    kinds: str
    now_us: int


def _record(lake: Lake, queries: Sequence[Query], signer: SealSigner | None, rule: _Rule) -> int:
    """Write the records of the old rows. Return the number of these rows. Raises LakeError."""
    if signer is not None:
        keep_key(lake, signer)
    seals, known = read_seals(lake).seals, read_forgotten(lake, rule.lake).segments
    count, tasks = 0, Tasks()
    for first in range(0, len(queries), tasks.count):
        records: list[tuple[Record, str]] = []
        answers = tasks.run(answer, queries[first : first + tasks.count])
        for old in (_Old(*row) for rows in answers for row in rows):
            if old.changed:
                raise LakeError(
                    "rows that would be forgotten were changed since they were shipped: see klamm audit verify"
                )
            count += old.lines
            seal = seals.get(old.segment)
            if seal is None:
                # `ship` adds the seal after the rows. If the rows were deleted now without a record, `verify` would
                # always miss them.
                raise LakeError(
                    f"{old.segment or 'a row'} has no seal in the lake yet: run klamm audit ship, then forget"
                )
            record, digests = _record_of(old, seal, known.setdefault(seal.segment, Forgotten()), rule)
            records.append((record if signer is None else record.signed(signer), digests))
        if records:
            write_records(lake, records)
    return count


def _record_of(old: _Old, seal: Seal, earlier: Forgotten, rule: _Rule) -> tuple[Record, str]:
    """Return the record of a segment's old rows in one file, and their digests. Add the digests to `earlier`."""
    if earlier.digests is not None:
        earlier.digests.update(old.digests)
    whole = earlier.digests is None or len(earlier.digests) == seal.events
    digests = "" if whole else "".join(sorted(old.digests))
    seqs = Ranges((seq, seq) for seq in old.seqs if seq is not None)
    record = Record(
        segment=seal.segment,
        forgotten_time_us=rule.now_us,
        before_us=rule.before_us,
        kinds=rule.kinds,
        lines=old.lines,
        seqs=str(Ranges([(seal.first_seq, seal.last_seq)]) if whole else seqs),
        whole=whole,
        digests_sha256=digests_sha256(digests),
        lake=rule.lake,
    )
    return record, digests
