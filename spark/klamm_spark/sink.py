"""`AuditSink`: the queue, the writer's thread and the spool, shared by all listeners with the same directory."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.aggregation import ADMIN_EVENT
from klamm_spark.encoder import LineEncoder
from klamm_spark.event_queue import EventQueue
from klamm_spark.recorder import Recorder
from klamm_spark.resources import TopicNames
from klamm_spark.settings import SINK_KEYS
from klamm_spark.spool import Spool
from klamm_spark.spool_folder import SpoolError
from klamm_spark.spool_losses import Deleted, Unsynced

if TYPE_CHECKING:
    from collections.abc import Callable

    from klamm import AdminEvent, ServerServices
    from klamm_spark.aggregation import Client
    from klamm_spark.files import SpoolFiles
    from klamm_spark.settings import AuditSettings

log = logging.getLogger("klamm.audit")

_RETRY_NS: Final = 1_000_000_000
_SWEEP_S: Final = 1.0
_PIECE_EVENTS: Final = 2000
_STOP_TIMEOUT_S: Final = 30.0
_METRICS: Final = "klamm:type=Audit,name="


class AuditSink:
    """The first observer that opens starts it, the last that closes stops it.

    `run_once` is one iteration of the thread's loop; a test may call it.
    """

    def __init__(self, settings: AuditSettings, services: ServerServices, files: SpoolFiles | None = None) -> None:
        self.settings = settings
        self._services = services
        self._clock = services.clock
        self.node = settings.node or socket.gethostname()
        self.spool = Spool(settings.spool / self.node, settings, services.clock, files)
        self.queue = EventQueue(settings.queue_capacity, settings.on_full)
        self.filtered_listeners: set[str] = set()
        self.topics = TopicNames()
        self.new_counting: deque[Client] = deque()
        self._recorder: Recorder
        self._encoder: LineEncoder
        self._users = 0
        # Protects the count of users: the first starts the writer, the last stops it.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._unwritten: list[tuple[bytes, int, int, int]] = []
        self._next_first = 0
        self._write_retry_ns = self._tick_retry_ns = 0
        self._write_error = self._tick_error = ""
        self.events_written = 0
        self.bytes_written = 0
        self.events_dropped = 0
        self.write_errors = 0
        self._unregister: list[Callable[[], object]] = []
        self._handlers: tuple[Callable[..., None], ...] = ()

    # ---- users

    def acquire(self, settings: AuditSettings) -> None:
        """Add a listener. Raises ValueError if its settings differ from the spool's; OSError, SpoolError."""
        for key in SINK_KEYS:
            if getattr(settings, key) != getattr(self.settings, key):
                raise ValueError(f"{key} must be the same for all listeners that write in {self.settings.spool}")
        with self._lock:
            if not self._users:
                self._start()
            self._users += 1

    def release(self) -> None:
        """Remove a listener."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._stop()

    def _start(self) -> None:
        self.open()
        self._thread = threading.Thread(target=self._run, name="klamm-audit", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """Start everything except the thread."""
        recovered = self.spool.open(self._services.random_bytes(4).hex())
        self._encoder = LineEncoder(self.node, self.spool.boot)
        self._recorder = recorder = Recorder(self._encoder, self._clock, self.new_counting)
        self._handlers = (
            recorder.requests,
            recorder.window,
            recorder.authentication,
            recorder.opened,
            recorder.closed,
            recorder.refused,
            recorder.admin_event,
        )
        for one in recovered:
            first = one.last_seq + 1 if one.last_seq is not None else 0
            detail = f"{one.torn_bytes} bytes of a torn event were cut off" if one.torn_bytes else one.unreadable
            action = "torn_tail" if one.torn_bytes else "unclean_stop"
            reason = "unreadable" if one.unreadable else "crash"
            recorder.gap(action, reason, gap_boot=one.boot, gap_first_seq=first, detail=detail)
        self._register_metrics()
        self._unregister.append(self._services.admin_events.subscribe(self._admin_event))

    def _register_metrics(self) -> None:
        metrics = self._services.metrics

        def counter(name: str, doc: str, read: Callable[[], float]) -> None:
            self._unregister.append(
                metrics.register(_METRICS + name, "counter", doc, lambda: (({"node": self.node}, read()),))
            )

        counter("EventsWritten", "Audit events written to the spool.", lambda: self.events_written)
        counter("BytesWritten", "Bytes of audit events written to the spool.", lambda: self.bytes_written)
        counter("EventsDropped", "Audit events that found no room in the queue.", lambda: self.events_dropped)
        counter("WriteErrors", "Failed attempts to write, sync or seal.", lambda: self.write_errors)
        counter("SegmentsSealed", "Segments sealed since the start.", lambda: self.spool.sealed_count)
        counter(
            "UnreadableFiles",
            "Files of the spool that could not be read at the start and were renamed.",
            lambda: self.spool.unreadable_count,
        )
        for name, doc, read in (
            ("QueueSize", "Audit events that wait to be written.", lambda: float(self.queue.size)),
            ("SpoolBytes", "Size of this node's folder of the spool.", lambda: float(self.spool.size_bytes)),
        ):
            self._unregister.append(metrics.gauge(_METRICS + name, doc, read, node=self.node))

    def _admin_event(self, event: AdminEvent) -> None:
        self.queue.put((ADMIN_EVENT, event), may_wait=False)
        if event.action == "server_stopping":
            self.queue.stop_blocking()

    def _stop(self) -> None:
        for unregister in self._unregister:
            unregister()
        self._unregister.clear()
        self.queue.stop_blocking()
        self._stopping.set()
        self.queue.wake()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)

    # ---- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.queue.wait(self._pause_s())
            # Collect events first: each turn takes the interpreter from the server's threads.
            self._stopping.wait(self.settings.flush_interval_ms / 1000)
            try:
                self.run_once()
            except Exception:
                log.exception("audit: a turn of the writer failed")
        self.close()

    def _pause_s(self) -> float:
        now_ns = self._clock.monotonic_ns()
        due_ns = max(self.spool.next_tick_ns, self._tick_retry_ns)
        if self._unwritten:
            due_ns = min(due_ns, self._write_retry_ns)
        return min(_SWEEP_S, max(0.0, (due_ns - now_ns) / 1e9))

    def run_once(self) -> None:
        """Record waiting events, write them, and do what is due. While writing fails, the queue is not emptied."""
        if not self._unwritten or self._write():
            self._take()
            self._write()
        # Also after a failed write: this may make room.
        self._tick()

    def _take(self) -> None:
        recorder = self._recorder
        recorder.set_time()
        entries, dropped = self.queue.take()
        for entry in entries:
            self._record(entry)
        if dropped:
            self.events_dropped += dropped
            log.error("audit: %d events were dropped: the queue of %d was full", dropped, self.settings.queue_capacity)
            recorder.dropped(self.spool.boot, dropped, "queue_full")
        recorder.sweep()
        self._collect()

    def _record(self, entry: tuple[Any, ...]) -> None:
        try:
            self._handlers[entry[0]](*entry[1:])
        except Exception:
            log.exception("audit: an event cannot be recorded")
            self.events_dropped += 1
            self._recorder.dropped(self.spool.boot, 1, "not_recordable")
        if self._recorder.count >= _PIECE_EVENTS:
            self._collect()

    def _collect(self) -> None:
        count = self._recorder.count
        if count:
            last = self._encoder.next_seq - 1
            self._unwritten.append((self._recorder.take(), self._next_first, last, count))
            self._next_first = last + 1

    def _write(self) -> bool:
        """Write the recorded events; False while that fails."""
        if self._unwritten and self._clock.monotonic_ns() < self._write_retry_ns:
            return False
        while self._unwritten:
            lines, first, last, count = self._unwritten[0]
            try:
                self.spool.write(lines, first, last, count)
            except SpoolError as error:
                self._write_error = self._failed(error, self._write_error)
                self._write_retry_ns = self._clock.monotonic_ns() + _RETRY_NS
                return False
            del self._unwritten[0]
            self.events_written += count
            self.bytes_written += len(lines)
        if self._write_error:
            log.warning("audit: writing the spool works again")
            self._write_error = ""
        self.queue.done()
        return True

    def _failed(self, error: SpoolError, before: str) -> str:
        self.write_errors += 1
        if str(error) != before:
            log.error("audit: %s; on_full = %s applies when the queue is full", error, self.settings.on_full)
        return str(error)

    def _tick(self) -> None:
        """Sync, seal and delete what is due, and record what was lost."""
        if self._clock.monotonic_ns() >= self._tick_retry_ns:
            try:
                self.spool.tick()
            except SpoolError as error:
                self._tick_error = self._failed(error, self._tick_error)
                self._tick_retry_ns = self._clock.monotonic_ns() + _RETRY_NS
            else:
                if self._tick_error:
                    log.warning("audit: syncing and sealing the spool works again")
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
            self._recorder.gap("segments_deleted", loss.reason, **numbers, gap_count=loss.events)
        else:
            detail = "the disk has not confirmed these events; some may be missing"
            self._recorder.gap("torn_tail", "fsync_failed", **numbers, detail=detail)

    def close(self) -> None:
        """Write and seal what is left. Events that cannot be written are lost; the log has their number, the next start
        records an `audit_gap`."""
        self._write_retry_ns = self._tick_retry_ns = 0
        try:
            self.run_once()
            self._recorder.sweep(everything=True)
            self._collect()
            self._write()
        except Exception:
            log.exception("audit: the last turn of the writer failed")
        _, dropped = self.queue.take()
        lost = max(sum(count for *_, count in self._unwritten), self.queue.size) + dropped
        if lost:
            log.error("audit: the spool cannot be written; about %d events are lost", lost)
        try:
            self.spool.close(final=not lost)
        except SpoolError as error:
            log.error("audit: %s; the next start seals it", error)
