"""`AuditTopic`: the events of the spool as records of a topic of this server, for any Kafka client.

A record is one event. Its value is the line, and its key the name of the stream's folder in the spool. Events go to the
spool first. If the topic cannot take an event, the spool still has it, and a reader sees by the numbers that it is
missing.

The topic has no events about reading the topic, because each read would cause the next event. The spool has them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Final

from klamm import KafkaError

log = logging.getLogger("klamm.audit")

SHARED_RECORDS: Final = "klamm.records"
"""The key in `services.shared` of the function that appends records. A handler set with topics puts it there."""
Append = Callable[[str, Sequence[tuple[bytes, bytes]]], None]
_CONNECTION: Final = re.compile(rb'"connection_id":"([^"]*)"')
_READING: Final = re.compile(
    rb'"api_name":"(?:Fetch|ListOffsets|OffsetCommit|OffsetFetch|TxnOffsetCommit|ShareFetch|ShareAcknowledge)"'
)
_FETCHING: Final = re.compile(rb'"api_name":"(?:Fetch|ShareFetch|ShareAcknowledge)"')
"""The requests that need READ on the topic. They need not name the topics of a session. For others of `_READING`
DESCRIBE is enough.
"""
_MAX_READERS: Final = 10_000


class AuditTopic:
    """Appends audit events to a topic. Only the writer's thread calls it."""

    def __init__(self, name: str, append: Append) -> None:
        self._name = name
        self._append = append
        self._named = b'"type":"TOPIC","name":"%s"' % name.encode("ascii")
        self._readers: dict[bytes, None] = {}
        self._error = ""
        self.records = 0
        self.missed = 0

    def add(self, stream: bytes, lines: bytes) -> None:
        """Append the events of these lines. A failure is logged once, and its events are counted."""
        wanted = [(stream, line) for line in lines.split(b"\n")[:-1] if not self._is_own_reading(line)]
        if not wanted:
            return
        try:
            self._append(self._name, wanted)
        except KafkaError as error:
            self.missed += len(wanted)
            if str(error) != self._error:
                self._error = str(error)
                log.error("audit: the topic %s takes no events: %s; the spool has them", self._name, error)
            return
        self.records += len(wanted)
        if self._error:
            self._error = ""
            log.warning("audit: the topic %s takes events again", self._name)

    def _is_own_reading(self, line: bytes) -> bool:
        """Return True if an event is a granted read of this topic, or a fetch on a connection that fetches it."""
        if not _READING.search(line) or b'"outcome":"denied"' in line:
            return False
        is_named = self._named in line
        if not _FETCHING.search(line):
            return is_named
        found = _CONNECTION.search(line)
        connection = found[1] if found is not None else b""
        if is_named:
            self._readers[connection] = None
            if len(self._readers) > _MAX_READERS:
                del self._readers[next(iter(self._readers))]
        return connection in self._readers
