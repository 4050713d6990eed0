"""`IntentJournal`: has each state change on disk before it is executed, so that a crash during it leaves a trace.

```
begin: one line of JSON ──► the handler runs ──► its outcome is written to the spool ──► finish: a line with its id
```
The file is `intents` in the folder of the stream `administration`. When the server starts again, an intent without an
end becomes an event `interrupted`. The file is rewritten when most of its intents have ended, so it stays small.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from klamm.runtime import Clock
from klamm_spark.observer.group_sync import GroupSync
from klamm_spark.storage.files import SpoolFiles

log = logging.getLogger("klamm.audit")

FILE_NAME: Final = "intents"
MAX_OPEN_BYTES: Final = 128 << 20
_REWRITE_BYTES: Final = 1 << 20


class UnrecordableError(Exception):
    """Raised if an intent cannot be recorded now. The message has the reason."""


class IntentJournal:
    """The journal. Threads that serve requests call `begin` and `abandon`, and the writer's thread calls the rest.

    An intent is open until its outcome is in the spool. At most `capacity` intents of `MAX_OPEN_BYTES` in total are
    open, so that there is room for the outcomes of all state changes. Intents that come within `sync_interval_ms` share
    a sync.
    """

    def __init__(self, path: Path, files: SpoolFiles, capacity: int, clock: Clock, sync_interval_ms: int = 0) -> None:
        self.errors = 0
        self.synced_count = 0
        self.sync = GroupSync(self._sync, clock, sync_interval_ms)
        self._path = path
        self._files = files
        self._capacity = capacity
        self._boot = ""
        # Protects the open intents and the file that they are written to.
        self._lock = threading.Lock()
        self._open: dict[str, bytes] = {}
        self._ended: list[str] = []
        self._next = 0
        self._descriptor = -1
        self._open_bytes = 0
        self._size_bytes = 0
        self._torn = False
        self._in_doubt = False
        """True if appended bytes may be missing in the file. Then the file is rewritten before anything is appended."""

    @property
    def open_count(self) -> int:
        """Return the number of state changes whose outcome is not in the spool yet."""
        return len(self._open)

    def open(self, boot: str) -> list[dict[str, Any]]:
        """Start a boot of the server. Return the intents of earlier boots that have no end; `finish` ends these too.

        Raises OSError.
        """
        self._boot = boot
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            data = b""
        left = _unfinished(data)
        self._open = {intent["intent_id"]: line for intent, line in left}
        self._open_bytes = sum(map(len, self._open.values()))
        if data:
            self._rewrite()
        else:
            self._descriptor = self._files.open_append(self._path)
            self._files.sync_directory(self._path.parent)
        return [intent for intent, _ in left]

    def close(self) -> None:
        """Close the file. The next start reports intents without an end."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def begin(self, time_us: int, fields: str, *, sync: bool) -> str:
        """Write an intent, and return its id. `fields` begins with a comma. Raises UnrecordableError.

        With `sync`, the intent is safe from a power failure too.
        """
        with self._lock:
            if len(self._open) >= self._capacity or self._open_bytes + len(fields) > MAX_OPEN_BYTES:
                raise UnrecordableError(f"{len(self._open)} state changes wait for the audit's spool")
            intent_id = f"{self._boot}/{self._next}"
            line = f'{{"intent_id":"{intent_id}","time_us":{time_us}{fields}}}\n'.encode("ascii")
            self._append(line)
            self._next += 1
            self._open[intent_id] = line
            self._open_bytes += len(line)
            self.synced_count += sync
        if sync:
            try:
                self.sync.wait()
            except OSError as error:
                self.errors += 1
                self.finish([intent_id])
                raise UnrecordableError(f"{self._path}: fsync: {error.strerror or error}") from error
        return intent_id

    def _sync(self) -> None:
        """Sync the bytes that were appended so far. Raises OSError."""
        with self._lock:
            if self._in_doubt:
                self._rewrite()
            descriptor = os.dup(self._descriptor)
        try:
            self._files.fsync(descriptor)
        except OSError:
            # The system may have dropped these bytes, and also the bytes of intents that wait for the next sync.
            self._in_doubt = True
            raise
        finally:
            os.close(descriptor)

    def abandon(self, intent_id: str) -> None:
        """End an intent whose request was not executed. `finish` writes that it has ended.

        So its room is free at once. Otherwise clients without rights, whose events may wait for room in a queue, could
        prevent state changes of other clients.
        """
        with self._lock:
            self._end(intent_id)

    def finish(self, intent_ids: Iterable[str] = ()) -> None:
        """End these intents, because their outcomes are written."""
        with self._lock:
            for intent_id in intent_ids:
                self._end(intent_id)
            if not self._ended or self._descriptor < 0:
                return
            try:
                self._append(f"{' '.join(self._ended)}\n".encode("ascii"))
                self._ended.clear()
                if self._size_bytes > _REWRITE_BYTES + 2 * self._open_bytes:
                    self._rewrite()
            except (OSError, UnrecordableError) as error:
                # Only logged, because after a crash the next start finds the outcomes in the spool.
                log.error("audit: %s", error)

    def _end(self, intent_id: str) -> None:
        line = self._open.pop(intent_id, None)
        if line is not None:
            self._open_bytes -= len(line)
            self._ended.append(intent_id)

    def _append(self, line: bytes) -> None:
        """Append a whole line, or none. Raises UnrecordableError."""
        try:
            if self._in_doubt:
                self._rewrite()
            self._cut_torn()
            self._torn = True
            self._files.write_all(self._descriptor, line)
        except OSError as error:
            self.errors += 1
            raise UnrecordableError(f"{self._path}: {error.strerror or error}") from error
        self._torn = False
        self._size_bytes += len(line)

    def _cut_torn(self) -> None:
        if self._torn:
            self._files.truncate(self._descriptor, self._size_bytes)
            self._torn = False

    def _rewrite(self) -> None:
        """Replace the file by a new one, which has only the open intents. Raises OSError."""
        data = b"".join(self._open.values())
        self._files.write_whole(self._path, data)
        # The open file has no name any more, so bytes that are appended to it would be lost.
        self._in_doubt = True
        # Otherwise a power failure might restore the old file, which lacks the intents that follow.
        self._files.sync_directory(self._path.parent)
        descriptor = self._files.open_append(self._path)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._size_bytes, self._torn, self._in_doubt = descriptor, len(data), False, False


def _unfinished(data: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """Return the intents without an end, each with its line.

    An incomplete last line is ignored: the server crashed before it executed the request.
    """
    found: dict[str, tuple[dict[str, Any], bytes]] = {}
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        if not line.startswith(b"{"):
            for intent_id in line.decode("ascii", "replace").split():
                found.pop(intent_id, None)
            continue
        try:
            intent = json.loads(line)
            found[intent["intent_id"]] = (intent, line)
        except (ValueError, TypeError, KeyError):
            log.error("audit: a line of the journal of intents cannot be read")
    return list(found.values())
