"""The filter `json_records`: checks the records of Produce requests."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter, setting
from klamm.filters import RecordAccess
from klamm.wire.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class JsonRecordsSettings:
    """The table `json_records` of a listener."""

    required: tuple[str, ...] = setting((), doc="Keys that every value must have.")


class JsonRecords(RequestFilter):
    """Filters Produce only, so other APIs cost nothing. It is blocking, so klamm calls it on a handler thread."""

    settings: JsonRecordsSettings

    def open(self, listener: ListenerContext) -> None:
        self._records = RecordAccess(listener)

    @property
    def api_keys(self) -> Collection[int]:
        return (ApiKey.PRODUCE,)

    @property
    def blocking(self) -> bool:
        # Unpacking and parsing a large batch takes longer than other clients of the processor should wait.
        return True

    def on_request(self, message: Any, context: RequestContext) -> Any:
        for topic in message.topic_data:
            for partition in topic.partition_data:
                self._check(partition)
        return message

    def _check(self, partition: Any) -> None:
        with self._records.of(partition) as records:
            for number, record in enumerate(records):
                problem = None if record.value is None else self._problem(record.value)
                if problem is not None:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD, f"Partition {partition.index}, record {number}: {problem}"
                    )

    def _problem(self, value: bytes) -> str | None:
        try:
            content = json.loads(value)
        except ValueError:
            return "no JSON"
        if not isinstance(content, dict):
            return "no JSON object"
        missing = [key for key in self.settings.required if key not in content]
        return f"lacks {', '.join(missing)}" if missing else None
