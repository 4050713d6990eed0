"""`FindingLog`: the file of findings. It has each finding once, as a line of JSON, even if the process is killed.

A line is written and synced before the state file. After a start, the log reads the lines that the state does
not know yet, and cuts off a line that a crash has left incomplete. Each output gets the lines in order; the state has
its position in the file. If the process is killed after the delivery of a line and before the state is written, the
output gets that line again, with the same `uid`. `klamm audit detect` calls all methods on its one thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.findings.detections import Detection, Finding
from klamm_spark.findings.ocsf import detection_finding
from klamm_spark.storage.files import SpoolFiles

STATE_SUFFIX: Final = ".state"
_LOCK_SUFFIX: Final = ".lock"
_MAX_KEYS: Final = 100_000
"""The number of remembered keys. Beyond it, the keys with the oldest findings are forgotten."""


class FindingLog:
    """The file of findings, open for appending. It holds a lock, so that only one process writes."""

    def __init__(self, path: Path, quiet_us: int, files: SpoolFiles | None = None) -> None:
        """Read the existing findings.

        If a key has had no event for `quiet_us`, its next finding is a new one. Raises LakeError if another process
        writes, OSError, and ValueError if the state cannot be read.
        """
        self._path = path
        self._quiet_us = quiet_us
        self._files = files or SpoolFiles()
        self._state_path = path.with_name(path.name + STATE_SUFFIX)
        try:
            self._lock = self._files.lock(path.with_name(path.name + _LOCK_SUFFIX))
        except BlockingIOError:
            raise LakeError(f"another process writes the findings {path}") from None
        self._last_us: dict[tuple[str, ...], int] = {}
        self._delivered: dict[str, int] = {}
        self._size = 0
        self.seen_us = 0
        """Wall-clock time of the last record, perhaps by an earlier process; 0 without a record."""
        try:
            self._descriptor = self._files.open_append(path)
        except BaseException:
            os.close(self._lock)
            raise
        try:
            self._recover()
        except BaseException:
            self._close()
            raise

    def _recover(self) -> None:
        known = 0
        if self._state_path.exists():
            state = json.loads(self._files.read(self._state_path))
            self.seen_us, known, self._delivered = state["seen_us"], state["size"], state["delivered"]
            self._last_us = {tuple(key): last_us for *key, last_us in state["keys"]}
        data = self._files.read(self._path)
        self._size = data.rfind(b"\n") + 1
        if self._size < len(data):
            self._files.truncate(self._descriptor, self._size)
        # If the file is shorter than the state says, it was rotated: this is another file.
        if self._size < known:
            known, self._delivered = 0, dict.fromkeys(self._delivered, 0)
        self._delivered = {name: min(at, self._size) for name, at in self._delivered.items()}
        for line in data[known : self._size].splitlines():
            about = json.loads(line)["unmapped"]
            self._note(tuple(about["key"]), about["last_us"])

    def record(self, found: Iterable[tuple[Detection, Finding]], now_us: int) -> list[dict[str, Any]]:
        """Append the new findings, and return them as OCSF. Raises OSError; the caller may then record the same ones
        again.
        """
        new = []
        latest: dict[tuple[str, ...], int] = {}
        for detection, finding in found:
            key = detection.key_of(finding)
            last_us = max(self._last_us.get(key, -1), latest.get(key, -1))
            if last_us < 0 or finding.first_us > last_us or finding.last_us > last_us + self._quiet_us:
                new.append(detection_finding(detection, finding, now_us))
            latest[key] = max(last_us, finding.last_us)
        self._append(b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in new))
        changed = any(self._last_us.get(key) != last_us for key, last_us in latest.items())
        for key, last_us in latest.items():
            self._note(key, last_us)
        self.seen_us = now_us
        if changed:
            self._save()
        return new

    def add_output(self, output: str) -> None:
        """Add an output. An output that the state does not know gets only later findings. Raises OSError."""
        if output not in self._delivered:
            self._delivered[output] = self._size
            self._save()

    def undelivered(self, output: str) -> Iterator[bytes]:
        """Yield the lines that an output has not received, the oldest first.

        A line counts as delivered when the caller requests the next one. Raises OSError.
        """
        at = self._delivered[output]
        if at == self._size:
            return
        with self._path.open("rb") as file:
            file.seek(at)
            for line in file.read(self._size - at).splitlines(keepends=True):
                yield line.rstrip(b"\n")
                at += len(line)
                self._delivered[output] = at
                self._save()

    def close(self) -> None:
        """Save the state, and release the lock. Raises OSError."""
        try:
            self._save()
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._descriptor)
        os.close(self._lock)

    def _note(self, key: tuple[str, ...], last_us: int) -> None:
        # Move the key to the end, because the oldest keys are at the start.
        self._last_us[key] = max(last_us, self._last_us.pop(key, -1))
        while len(self._last_us) > _MAX_KEYS:
            del self._last_us[next(iter(self._last_us))]

    def _append(self, data: bytes) -> None:
        if not data:
            return
        try:
            self._files.write_all(self._descriptor, data)
            self._files.fsync(self._descriptor)
        except OSError:
            self._files.truncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _save(self) -> None:
        state = {
            "seen_us": self.seen_us,
            "size": self._size,
            "delivered": self._delivered,
            "keys": [[*key, last_us] for key, last_us in self._last_us.items()],
        }
        self._files.write_whole(self._state_path, json.dumps(state, separators=(",", ":")).encode())
