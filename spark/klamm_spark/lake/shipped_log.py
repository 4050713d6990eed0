"""What a streaming query has committed, read from its checkpoint as it grows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from klamm_spark.lake.layout import check_log_version, last_batch, read_log
from klamm_spark.storage.filesystems import AnyPath, path_from_uri


class ShippedLog:
    """The files of `source` whose rows a query with a file source has committed, each once.

    Spark sums the log up in a `.compact` file now and then: of such a file only the end is parsed, so that a call costs
    what is new.
    """

    def __init__(self, checkpoint: AnyPath, source: AnyPath) -> None:
        self._checkpoint = checkpoint
        self._source = source
        self._committed: int | None = None
        self._offset = -1
        self._in_work: int | None = None

    def new_files(self) -> list[AnyPath]:
        """The files that were committed since the last call. Raises LakeError if the log's format is unknown."""
        folder, last = self._checkpoint / "sources" / "0", last_batch(self._checkpoint / "commits")
        if last is None or last == self._committed or not folder.is_dir():
            return []
        text = (self._checkpoint / "offsets" / str(last)).read_text(encoding="utf-8")
        offset = json.loads(text.splitlines()[-1])["logOffset"]
        found = [
            path_from_uri(entry["path"], self._source)
            for entry in self._entries(folder)
            if self._offset < entry["batchId"] <= offset
        ]
        self._committed, self._offset = last, offset
        return found

    def files_in_work(self) -> list[AnyPath]:
        """The files of the batch that has started and is not committed, at the first call within it."""
        batch = 0 if self._committed is None else self._committed + 1
        if batch == self._in_work or not (self._checkpoint / "offsets" / str(batch)).exists():
            return []
        self._in_work = batch
        entries = (
            entry for entry in self._entries(self._checkpoint / "sources" / "0") if entry["batchId"] > self._offset
        )
        return [path_from_uri(entry["path"], self._source) for entry in entries]

    def _entries(self, folder: AnyPath) -> Iterator[dict[str, Any]]:
        """At least the entries after the last offset."""
        plain: dict[int, AnyPath] = {}
        compact: dict[int, AnyPath] = {}
        for path in folder.iterdir():
            number, _, suffix = path.name.partition(".")
            if number.isdigit() and int(number) > self._offset and suffix in ("", "compact"):
                (compact if suffix else plain)[int(number)] = path
        start = max(compact, default=-1)
        if compact:
            yield from self._end_of(compact[start])
        for batch in sorted(plain):
            if batch > start:
                yield from read_log(plain[batch])

    def _end_of(self, path: AnyPath) -> Iterator[dict[str, Any]]:
        """The last entries of a log that has all batches in order, newest first."""
        data = path.read_bytes()
        first, end = data.find(b"\n"), len(data)
        check_log_version(path, data[: max(first, 0)].decode())
        while end > first + 1:
            begin = data.rfind(b"\n", first, end)
            if data[begin + 1 : end]:
                entry = json.loads(data[begin + 1 : end])
                if entry["batchId"] <= self._offset:
                    return
                yield entry
            end = begin
