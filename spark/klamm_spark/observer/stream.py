"""`AuditStream`: one of a server's streams of events, with its queue and its spool.

The writer's thread of `AuditSink` calls everything except `queue` and `latest`, which any thread may use.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm_spark.events.event import WAS_SHIPPED
from klamm_spark.observer.encoder import LineEncoder
from klamm_spark.observer.event_queue import DROP, Entry, EventQueue
from klamm_spark.observer.recorder import Recorder
from klamm_spark.spool.folder import SpoolError
from klamm_spark.spool.layout import ADMINISTRATION, REQUESTS, SECURITY, STREAMS, folder_name
from klamm_spark.spool.losses import Deleted, Recovered, Unsynced
from klamm_spark.spool.writer import Spool

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from klamm.runtime import Clock
    from klamm_spark.observer.aggregation import Client
    from klamm_spark.observer.audit_topic import AuditTopic
    from klamm_spark.observer.intents import IntentJournal
    from klamm_spark.settings.audit import AuditSettings
    from klamm_spark.storage.files import SpoolFiles

log = logging.getLogger("klamm.audit")

_RETRY_NS: Final = 1_000_000_000
_LATEST: Final = 100
_PIECE_EVENTS: Final = 2000
_PIECE_BYTES: Final = 1 << 20
"""The approximate size of a piece of events that is written at once. It must be smaller than `retention_bytes`."""


class _Lines(NamedTuple):
    """Recorded events that are not written yet, and the ids of the intents whose outcomes they are."""

    data: bytes
    first_seq: int
    last_seq: int
    events: int
    finished: list[str]


class AuditStream:
    """One stream of events. `run_once` is one turn of the writer's thread."""

    def __init__(
        self,
        name: str,
        node: str,
        settings: AuditSettings,
        clock: Clock,
        files: SpoolFiles,
        journal: IntentJournal,
        filled: threading.Event,
    ) -> None:
        self.name = name
        self.settings = _settings_of(name, settings)
        self.spool = Spool(settings.spool / folder_name(node, name), self.settings, clock, files, node)
        self.queue = EventQueue(*_capacity_of(name, settings), filled)
        self.new_counting: deque[Client] = deque()
        self._node = node
        self._clock = clock
        self._journal = journal
        self._recorder: Recorder
        self._encoder: LineEncoder
        self._unwritten: list[_Lines] = []
        self._next_first = 0
        self._write_retry_ns = self._tick_retry_ns = 0
        self._write_error = self._tick_error = ""
        self._latest: deque[bytes] = deque(maxlen=_LATEST)
        self.events_written = 0
        self.bytes_written = 0
        self.events_dropped = 0
        self.write_errors = 0
        self.topic: AuditTopic | None = None
        """The topic that also gets the lines, once they are in the spool; None without a topic."""

    def open(self, boot_suffix: str, named: Callable[[str], str] | None = None) -> None:
        """Open the spool, and record which events an earlier boot has lost. For `named` see `Recorder`.

        Raises OSError, SpoolError.
        """
        recovered = self.spool.open(boot_suffix + STREAMS[self.name])
        self._encoder = LineEncoder(self._node, self.spool.boot)
        self._recorder = Recorder(self._encoder, self._clock, self.new_counting, named)
        for one in recovered:
            self._record_crash(one)

    def _record_crash(self, one: Recovered) -> None:
        first = one.last_seq + 1 if one.last_seq is not None else 0
        detail = f"{one.torn_bytes} bytes of a torn event were cut off" if one.torn_bytes else one.unreadable
        action = "torn_tail" if one.torn_bytes else "unclean_stop"
        reason = "unreadable" if one.unreadable else "crash"
        self._recorder.gap(action, reason, gap_boot=one.boot, gap_first_seq=first, detail=detail)

    def latest(self) -> list[bytes]:
        """Return the lines of the latest events since the start. Any thread may call it."""
        # `copy` is a single call, during which no other thread changes the deque.
        return list(self._latest.copy())

    @property
    def next_due_ns(self) -> int:
        """Return the time, on the monotonic clock, at which the stream needs its next turn if no event comes."""
        due_ns = max(self.spool.next_tick_ns, self._tick_retry_ns)
        return min(due_ns, self._write_retry_ns) if self._unwritten else due_ns

    def run_once(self) -> None:
        """Record the queued events, write them, and sync, seal and delete if it is time. After a failed write, the
        queue stays.
        """
        if not self._unwritten or self._write():
            self._take()
            self._write()
        # Also after a failed write, because deleting old segments may make room.
        self._tick()

    def _take(self) -> None:
        recorder = self._recorder
        recorder.set_time()
        entries, dropped = self.queue.take()
        for entry in entries:
            self._record(entry)
        if dropped:
            self.events_dropped += dropped
            log.error(
                "audit: %d events were dropped: the queue of %s, %d events, was full",
                dropped,
                self.name,
                self.queue.capacity,
            )
            recorder.dropped(self.spool.boot, dropped, "queue_full")
        recorder.sweep()
        self._collect()

    def _record(self, entry: Entry) -> None:
        try:
            entry(self._recorder)
        except Exception:
            log.exception("audit: an event cannot be recorded")
            self.events_dropped += 1
            self._recorder.dropped(self.spool.boot, 1, "not_recordable")
        if self._recorder.count >= _PIECE_EVENTS or self._recorder.size_bytes >= _PIECE_BYTES:
            self._collect()

    def _collect(self) -> None:
        count = self._recorder.count
        if count:
            last = self._encoder.next_seq - 1
            data, finished = self._recorder.take()
            self._unwritten.append(_Lines(data, self._next_first, last, count, finished))
            self._next_first = last + 1

    def _write(self) -> bool:
        """Write the recorded events. Return False if that fails, or has just failed."""
        if self._unwritten and self._clock.monotonic_ns() < self._write_retry_ns:
            return False
        while self._unwritten:
            lines = self._unwritten[0]
            try:
                self.spool.write(lines.data, lines.first_seq, lines.last_seq, lines.events)
            except SpoolError as error:
                self._write_error = self._failed(error, self._write_error)
                self._write_retry_ns = self._clock.monotonic_ns() + _RETRY_NS
                return False
            del self._unwritten[0]
            self._latest.extend(lines.data.rsplit(b"\n", _LATEST + 1)[-_LATEST - 1 : -1])
            self.events_written += lines.events
            self.bytes_written += len(lines.data)
            if lines.finished:
                self._journal.finish(lines.finished)
            topic = self.topic
            if topic is not None:
                topic.add(self.spool.path.name.encode(), lines.data)
        if self._write_error:
            log.warning("audit: writing the spool %s works again", self.spool.path)
            self._write_error = ""
        self.queue.done()
        return True

    def _failed(self, error: SpoolError, before: str) -> str:
        self.write_errors += 1
        if str(error) != before:
            log.error("audit: %s; on_full = %s applies when the queue is full", error, self.settings.on_full)
        return str(error)

    def _tick(self) -> None:
        """Sync, seal and delete if it is time. Record the events that were lost or deleted."""
        if self._clock.monotonic_ns() >= self._tick_retry_ns:
            try:
                self.spool.tick()
            except SpoolError as error:
                self._tick_error = self._failed(error, self._tick_error)
                self._tick_retry_ns = self._clock.monotonic_ns() + _RETRY_NS
            else:
                if self._tick_error:
                    log.warning("audit: syncing and sealing the spool %s works again", self.spool.path)
                    self._tick_error = ""
        self._record_losses()

    def _record_losses(self) -> None:
        losses = self.spool.take_losses()
        if losses:
            for loss in losses:
                self._record_gap(loss)
            self._collect()
            self._write()

    def _record_gap(self, loss: Deleted | Unsynced) -> None:
        numbers: dict[str, Any] = {
            "gap_boot": loss.boot,
            "gap_first_seq": loss.first_seq,
            "gap_last_seq": loss.last_seq,
        }
        if isinstance(loss, Deleted):
            detail = WAS_SHIPPED if loss.shipped else None
            self._recorder.gap("segments_deleted", loss.reason, **numbers, gap_count=loss.events, detail=detail)
        else:
            detail = "the disk has not confirmed these events; some may be missing"
            self._recorder.gap("torn_tail", "fsync_failed", **numbers, detail=detail)

    def close(self) -> None:
        """Write the remaining events, and seal the segment.

        Events that cannot be written are lost. The log has their number, and the next start records an `audit_gap`.
        """
        self._write_retry_ns = self._tick_retry_ns = 0
        try:
            self.run_once()
            self._recorder.sweep(everything=True)
            self._collect()
            self._write()
        except Exception:
            log.exception("audit: the last turn of the writer failed")
        _, dropped = self.queue.take()
        lost = max(sum(lines.events for lines in self._unwritten), self.queue.size) + dropped
        if lost:
            log.error("audit: the spool %s cannot be written; about %d events are lost", self.spool.path, lost)
        try:
            self.spool.close(final=not lost)
        except SpoolError as error:
            log.error("audit: %s; the next start seals it", error)


def _settings_of(stream: str, settings: AuditSettings) -> AuditSettings:
    """Return the settings with the retention of a stream."""
    if stream == REQUESTS:
        return settings
    return replace(
        settings,
        retention_bytes=getattr(settings, f"{stream}_retention_bytes"),
        retention_ms=getattr(settings, f"{stream}_retention_ms"),
    )


def _capacity_of(stream: str, settings: AuditSettings) -> tuple[int, str]:
    """Return the capacity of a stream's queue, and what a full queue does.

    The queue of administration has room for the outcomes of all open state changes, and for as many other events. If
    there is no room for an outcome, a state change is refused before it is executed. So nothing waits or is refused
    afterwards.
    """
    if stream == ADMINISTRATION:
        return settings.max_open_changes, DROP
    return settings.queue_capacity, settings.on_full


STREAM_NAMES: Final = (ADMINISTRATION, SECURITY, REQUESTS)
"""The streams, in the order in which the writer serves them."""
