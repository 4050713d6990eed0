"""`SchemasTopic`: the compacted topic in which the registry stores its state. `Registry` reads and appends."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.testing import Admin
from klamm_schema_registry.formats import strict_json

log = logging.getLogger("klamm.schema_registry")

_MORE_BYTES: Final = 4096


class SchemasTopic:
    """The topic. Its methods raise KafkaError, and OSError if the broker cannot be reached."""

    def __init__(self, admin: Admin, name: str, max_schema_bytes: int) -> None:
        self._admin = admin
        self._name = name
        self._max_schema_bytes = max_schema_bytes

    def read(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """Yield the key and the value of each record, the oldest first. Create the topic if it does not exist."""
        # A record has the schema of a request, encoded as JSON again, and a few more fields.
        configs = {"cleanup.policy": "compact", "max.message.bytes": 2 * self._max_schema_bytes + _MORE_BYTES}
        try:
            self._admin.create_topic(self._name, 1, configs)
        except KafkaError as error:
            if error.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        for record in self._admin.consume(self._name, partition=0):
            try:
                key = strict_json(record.key or b"")
                value = strict_json(record.value) if record.value else None
            except (ValueError, RecursionError):
                log.warning("offset %d of %s is not a record of a schema registry", record.offset, self._name)
                continue
            yield key, value

    def append(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Append a record. Return once the broker has it."""
        self._admin.produce(self._name, None if value is None else _text(value), key=_text(key))


def _text(found: Mapping[str, Any]) -> str:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)
