"""Which commits of `events` the disk is known to have, and what a power cut has cut off in the others.

A commit may be whole where a file of rows that it names is not: the system writes them in any order. None of the
segments of such a commit is marked as shipped, so the spool still has them: `klamm audit recover` takes all commits
that are not known to be synced out of the table, and `ship` ships them again. A commit that is synced stays, whatever
becomes of its files: the spool may have deleted its segments. All of this is for a lake in a folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMIT_LOG, committed_files, read_log
from klamm_spark.lake.torn import DELTA_COMMIT, is_cut, is_torn, log_files, whole_checkpoints
from klamm_spark.storage.filesystems import path_from_uri, replace_durably

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from klamm_spark.lake.layout import Lake

_SYNCED: Final = "synced"
"""In the checkpoint, which goes when the commits get other numbers."""


class Synced(NamedTuple):
    """The last commit that is synced: its number, and when the newest file of rows was written that is synced.

    The time, in milliseconds, is for a log that sums up all commits: later entries are not synced.
    """

    number: int = -1
    newest_ms: int = 0


def remember_synced(lake: Lake, number: int, entries: Iterable[dict[str, Any]]) -> None:
    """The commits up to this one are on the disk with their rows; the newest have `entries`. Raises OSError."""
    known = _synced(lake) or Synced()
    newest_ms = max((entry["modificationTime"] for entry in entries), default=0)
    lake.ship_checkpoint.mkdir(parents=True, exist_ok=True)
    replace_durably(lake.ship_checkpoint / _SYNCED, f"{number} {max(known.newest_ms, newest_ms)}")


def begin_to_remember(lake: Lake) -> None:
    """Take all commits for synced, if nothing is known of them. Raises OSError, LakeError."""
    if isinstance(lake.root, Path) and _synced(lake) is None:
        commits = _commits(lake)
        last = max(commits, default=-1)
        remember_synced(lake, last, added_files(commits[last], lake.sink) if commits else ())


def require_whole_rows(lake: Lake) -> None:
    """Raises LakeError if a power cut has cut off a file of rows."""
    for path in cut_files(lake):
        raise LakeError(
            f"{path} is cut off, as a power cut leaves a file. Events would be lost: run klamm audit recover"
        )


def cut_files(lake: Lake) -> Iterator[Path]:
    """The files of rows that are missing, cut off or damaged, of the commits that are not known to be synced."""
    synced = _synced(lake) or Synced()
    for commit in unsynced_commits(lake):
        sums_up = commit.suffix == ".compact"
        for entry in () if is_torn(commit) else added_files(commit, lake.sink):
            path: Any = path_from_uri(entry["path"], lake.events)
            if (not sums_up or entry["modificationTime"] > synced.newest_ms) and is_cut(path, entry["size"]):
                yield path


def unsynced_commits(lake: Lake) -> list[Path]:
    """The commits that are not known to be synced, in their order; none in a lake at a URI."""
    synced = _synced(lake)
    if synced is None:
        return []
    commits = _commits(lake)
    return [commits[number] for number in sorted(commits) if number > synced.number]


def added_files(commit: Path, sink: str) -> list[dict[str, Any]]:
    """The entries of the files that a commit has added. A log that sums up all commits has those of all."""
    if sink == "delta":
        lines = commit.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    return read_log(commit)


def tear_unsynced_commits(lake: Lake) -> None:
    """Leave the commits that are not known to be synced as a power cut leaves them: empty.

    Raises LakeError if the log before them is gone; nothing has changed then.
    """
    commits = unsynced_commits(lake)
    if lake.sink == "delta":
        _remove_checkpoints_from(commits[0])
    else:
        committed_files(lake.events, commits)
    for path in commits:
        replace_durably(path, "")


def _remove_checkpoints_from(commit: Path) -> None:
    """Delta's own, which sum up this commit."""
    log, number = commit.parent, int(commit.stem)
    if not number:
        raise LakeError(
            f"{commit} was not synced, nor anything after it: move {log.parent} and the checkpoint of ship away, and "
            "klamm audit ship ships what the spool has"
        )
    checkpoints = whole_checkpoints(log)
    if min(checkpoints, default=number) >= number and not (log / DELTA_COMMIT.format(0)).exists():
        raise LakeError(f"{commit} cannot be left out, as the log before it is gone: only a copy of it can replace it")
    later = [path for found in checkpoints if found >= number for path in checkpoints[found]]
    for path in (*later, log / "_last_checkpoint"):
        for file in (path, path.with_name(f".{path.name}.crc")):
            file.unlink(missing_ok=True)


def _synced(lake: Lake) -> Synced | None:
    path = lake.ship_checkpoint / _SYNCED
    if not isinstance(path, Path) or not path.exists():
        return None
    number, _, newest_ms = path.read_text(encoding="utf-8").partition(" ")
    try:
        return Synced(int(number), int(newest_ms))
    except ValueError:
        return None


def _commits(lake: Lake) -> dict[int, Any]:
    if lake.sink == "parquet":
        return log_files(lake.events / COMMIT_LOG)
    found: dict[int, Any] = {}
    for path in (lake.events / "_delta_log").glob("[0-9]*.json"):
        if path.stem.isdigit():
            found[int(path.stem)] = path
    return found
