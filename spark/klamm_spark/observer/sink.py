"""`AuditSink`: the streams of events and their writer's thread, shared by all listeners with the same spool."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal

from klamm import AdminEvent, ListenerContext, ServerServices
from klamm_spark.events.pseudonyms import Pseudonyms
from klamm_spark.observer.aggregation import ListenerAudit
from klamm_spark.observer.audit_topic import SHARED_RECORDS, Append, AuditTopic
from klamm_spark.observer.event_queue import REFUSE
from klamm_spark.observer.intents import FILE_NAME, IntentJournal
from klamm_spark.observer.stream import STREAM_NAMES, AuditStream
from klamm_spark.requests.resources import TopicNames
from klamm_spark.settings.audit import SINK_KEYS, AuditSettings
from klamm_spark.spool.layout import ADMINISTRATION, REQUESTS, SECURITY, folder_name
from klamm_spark.spool.signatures import read_private
from klamm_spark.storage.files import SpoolFiles

log = logging.getLogger("klamm.audit")

_SWEEP_S: Final = 1.0
_STOP_TIMEOUT_S: Final = 30.0
_METRICS: Final = "klamm:type=Audit,name="
_STREAM_COUNTERS: Final = (
    ("EventsWritten", "events_written", "Audit events written to the spool."),
    ("BytesWritten", "bytes_written", "Bytes of audit events written to the spool."),
    ("EventsDropped", "events_dropped", "Audit events that found no room in the queue."),
    ("WriteErrors", "write_errors", "Failed attempts to write, sync or seal."),
    ("SegmentsSealed", "spool.sealed_count", "Segments sealed since the start."),
    (
        "UnreadableFiles",
        "spool.unreadable_count",
        "Files of the spool that could not be read at the start and were renamed.",
    ),
)
"""The name of each metric, the attribute of an `AuditStream` with its value, and its documentation. The tables below
have the same form.
"""
_STREAM_GAUGES: Final = (
    ("QueueSize", "queue.size", "Audit events that wait to be written."),
    ("SpoolBytes", "spool.size_bytes", "Size of the stream's folder of the spool."),
    ("SpoolLimitBytes", "settings.retention_bytes", "The size at which on_limit applies; -1 for none."),
)
_JOURNAL_COUNTERS: Final = (
    ("IntentErrors", "errors", "Intents of state changes that could not be written or synced."),
    ("IntentSyncs", "sync.count", "Syncs of the journal of intents."),
    ("IntentsSynced", "synced_count", "Intents of state changes that waited for a sync; many may have the same."),
)
_JOURNAL_GAUGES: Final = (("OpenChanges", "open_count", "State changes whose outcome is not in the spool yet."),)
_TOPIC_COUNTERS: Final = (
    ("TopicRecords", "records", "Audit events that were written to the topic."),
    ("TopicMisses", "missed", "Audit events that the topic did not take; the spool has them."),
)


class AuditSink:
    """The streams and their writer. The first observer that opens starts the thread, and the last that closes stops it.

    `run_once` is one turn of the thread's loop. A test may call it instead.
    """

    def __init__(self, settings: AuditSettings, services: ServerServices, files: SpoolFiles | None = None) -> None:
        self.settings = settings
        self._services = services
        self._clock = services.clock
        self.node = services.worker.named(settings.node or socket.gethostname())
        files = files or SpoolFiles()
        folder = settings.spool / folder_name(self.node, ADMINISTRATION)
        self._filled = threading.Event()
        self.journal = IntentJournal(
            folder / FILE_NAME, files, settings.max_open_changes, services.clock, settings.intent_sync_interval_ms
        )
        self.streams = {
            name: AuditStream(name, self.node, settings, services.clock, files, self.journal, self._filled)
            for name in STREAM_NAMES
        }
        for one in self.streams.values():
            one.spool.name_sisters(other.spool for other in self.streams.values() if other is not one)
        self.requests = self.streams[REQUESTS]
        self.security = self.streams[SECURITY]
        self.administration = self.streams[ADMINISTRATION]
        self.topic: AuditTopic | None = None
        self.named: Callable[[str], str] | None = None
        """A function that returns a line with pseudonyms, or None if the settings want none."""
        self.filtered_listeners: set[str] = set()
        self.topics: defaultdict[str, TopicNames] = defaultdict(TopicNames)
        """The names of topics, by handler set."""
        self._users = 0
        # Protects the count of listeners, when the first starts the writer and when the last stops it.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._unregister: list[Callable[[], object]] = []

    # ---- users

    def acquire(self, settings: AuditSettings) -> None:
        """Add a listener. Raises ValueError if its settings contradict those of the spool; OSError, SpoolError."""
        for key in SINK_KEYS:
            if getattr(settings, key) != getattr(self.settings, key):
                raise ValueError(f"{key} must be the same for all listeners that write in {self.settings.spool}")
        with self._lock:
            if not self._users:
                self._start()
            self._users += 1

    def audit_of(self, listener: ListenerContext, settings: AuditSettings) -> ListenerAudit:
        """Return the audit of a listener, which puts events into the queues here."""
        queues = self.requests.queue, self.security.queue, self.administration.queue
        topics = self.topics[listener.api_set]
        return ListenerAudit(listener, settings, queues, topics, self.requests.new_counting, self.journal.abandon)

    def is_full(self) -> bool:
        """Return True if requests should be refused."""
        return self.requests.queue.full or self.security.queue.full

    def latest(self) -> list[dict[str, Any]]:
        """Return the latest events of all streams, the newest first, e.g. for a page. Any thread may call it."""
        lines = (line for stream in self.streams.values() for line in stream.latest())
        return sorted(map(json.loads, lines), key=itemgetter("time_us", "seq"), reverse=True)

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
        """Start everything except the thread. Raises OSError, SpoolError, ValueError."""
        if self.settings.topic:
            append: Append | None = self._services.shared.find(SHARED_RECORDS)
            if append is None:
                raise ValueError("topic needs an api_set that has topics, e.g. the embedded broker")
            self.topic = AuditTopic(self.settings.topic, append)
            for stream in self.streams.values():
                stream.topic = self.topic
        if self.settings.pseudonyms and self.settings.pseudonym_key is not None:
            key = read_private(self.settings.pseudonym_key)
            self.named = Pseudonyms(self.settings.pseudonyms, key).in_text
        suffix = self._services.random_bytes(4).hex()
        with contextlib.ExitStack() as opened:
            for stream in self.streams.values():
                stream.open(suffix, self.named)
                opened.callback(stream.spool.close)
            self._report_interrupted()
            # All spools are open now, so do not close them.
            opened.pop_all()
        self._register_metrics()
        self._unregister.append(self._services.admin_events.subscribe(self._admin_event))

    def _report_interrupted(self) -> None:
        """Record the state changes of earlier boots that have no outcome."""
        intents = self.journal.open(self.administration.spool.boot)
        if not intents:
            return
        # The outcome may be in the spool although the journal was not updated.
        written = self.administration.spool.newest_lines() + self.security.spool.newest_lines()
        for intent in intents:
            if f'"intent_id":"{intent["intent_id"]}"'.encode() in written:
                self.journal.finish([intent["intent_id"]])
            else:
                self._put_interrupted(intent)

    def _register_metrics(self) -> None:
        node = {"node": self.node}
        streams = [({**node, "stream": name}, stream) for name, stream in self.streams.items()]
        self._register("counter", _STREAM_COUNTERS, streams)
        self._register("gauge", _STREAM_GAUGES, streams)
        self._register("counter", _JOURNAL_COUNTERS, [(node, self.journal)])
        self._register("gauge", _JOURNAL_GAUGES, [(node, self.journal)])
        if self.topic is not None:
            self._register("counter", _TOPIC_COUNTERS, [({**node, "topic": self.settings.topic}, self.topic)])
        if self.settings.on_full == REFUSE:
            reason = "its queue is full, so requests are refused"
            self._unregister.append(
                self._services.report_obstacle(f"audit in {self.settings.spool}", reason, self.is_full)
            )

    def _register(
        self,
        kind: Literal["counter", "gauge"],
        metrics: Iterable[tuple[str, str, str]],
        sources: Sequence[tuple[dict[str, str], object]],
    ) -> None:
        """Register metrics. Their values come from an attribute of each of these objects."""

        def samples(attribute: str) -> Callable[[], list[tuple[dict[str, str], float]]]:
            read = attrgetter(attribute)
            return lambda: [(labels, read(source)) for labels, source in sources]

        registry = self._services.metrics
        for name, attribute, doc in metrics:
            self._unregister.append(registry.register(_METRICS + name, kind, doc, samples(attribute)))

    def _admin_event(self, event: AdminEvent) -> None:
        self.administration.queue.put(lambda recorder: recorder.admin_event(event), may_wait=False)
        if event.action == "server_stopping":
            self._stop_blocking()
            # The broker closes its topics before observers are closed.
            for stream in self.streams.values():
                stream.topic = None

    def _put_interrupted(self, intent: dict[str, Any]) -> None:
        self.administration.queue.put(lambda recorder: recorder.interrupted(intent), may_wait=False)

    def _stop_blocking(self) -> None:
        for stream in self.streams.values():
            stream.queue.stop_blocking()

    def _stop(self) -> None:
        for unregister in self._unregister:
            unregister()
        self._unregister.clear()
        self._stop_blocking()
        self._stopping.set()
        self._filled.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
            if self._thread.is_alive():
                log.error("audit: the spool has not been written within %d s", _STOP_TIMEOUT_S)
            self._thread = None

    # ---- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._filled.wait(self._pause_s())
            # Let events collect for a moment, because each turn takes the interpreter from the server's threads.
            self._stopping.wait(self.settings.flush_interval_ms / 1000)
            # Clear it before the turn, so that an event that comes during the turn starts the next one.
            self._filled.clear()
            self.run_once()
        self.close()

    def _pause_s(self) -> float:
        due_ns = min(stream.next_due_ns for stream in self.streams.values())
        return min(_SWEEP_S, max(0.0, (due_ns - self._clock.monotonic_ns()) / 1e9))

    def run_once(self) -> None:
        """Do one turn of each stream, and of the journal."""
        for stream in self.streams.values():
            try:
                stream.run_once()
            except Exception:
                log.exception("audit: a turn of the writer failed")
        self.journal.finish()

    def close(self) -> None:
        """Write the remaining events of each stream, and seal its segment."""
        for stream in self.streams.values():
            stream.close()
        self.journal.close()
