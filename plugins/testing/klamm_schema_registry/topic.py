"""`SchemasTopic`: the compacted topic in which the registry keeps everything."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from klamm import ErrorCode, KafkaError
from klamm.testing import Admin

log = logging.getLogger("klamm.schema_registry")


class SchemasTopic:
    """Reads and appends records. Raises KafkaError, or OSError if the broker cannot be reached."""

    def __init__(self, admin: Admin, name: str) -> None:
        self._admin = admin
        self._name = name

    def read(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """Yield key and value of each record, the oldest first; create the topic if there is none."""
        try:
            self._admin.create_topic(self._name, 1, {"cleanup.policy": "compact"})
        except KafkaError as error:
            if error.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        for record in self._admin.consume(self._name, partition=0):
            try:
                key = json.loads(record.key or b"")
                yield key, json.loads(record.value) if record.value else None
            except ValueError:
                log.warning("offset %d of %s is not a record of a schema registry", record.offset, self._name)

    def append(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Append a record; returns once the broker has it."""
        self._admin.produce(self._name, None if value is None else _text(value), key=_text(key))


def _text(found: Mapping[str, Any]) -> str:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
