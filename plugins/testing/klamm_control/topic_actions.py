"""`TopicActions`: topics and records."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from klamm.testing import Isolation
from klamm_control.controlled import Actions, limited
from klamm_control.routes import route
from klamm_control.values import ConsumedRecord, Count, Done, FirstOffset, TimeoutS, TopicName


class TopicActions(Actions):
    """Topics and records."""

    @route("GET", "/topics")
    def topics(self) -> dict[str, int]:
        """The topics, each with its number of partitions."""
        return self._server.admin.topics()

    @route("POST", "/topics")
    def create_topic(
        self, name: str | None = None, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> TopicName:
        """Create a topic; without a name it gets a random one."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        self._server.admin.create_topic(name, partitions, configs)
        return {"name": name}

    @route("DELETE", "/topics/{topic}")
    def delete_topic(self, topic: str) -> Done:
        """Delete a topic."""
        self._server.admin.delete_topics(topic)
        return {}

    @route("POST", "/topics/{topic}/records")
    def produce(
        self, topic: str, values: Sequence[str | None], key: str | None = None, partition: int = 0
    ) -> FirstOffset:
        """Append a record for each value, and return the offset of the first."""
        return {"offset": self._server.admin.produce(topic, *values, key=key, partition=partition)}

    @route("GET", "/topics/{topic}/records")
    def consume(
        self, topic: str, count: Count = None, timeout_s: TimeoutS = 10.0, isolation: Isolation = "read_committed"
    ) -> list[ConsumedRecord]:
        """Return the records of a topic, or `count` of them as soon as they are there.

        Records of transactions that are open or were aborted are left out unless `isolation` is `read_uncommitted`.
        """
        found = self._server.admin.consume(topic, count, isolation=isolation, timeout_s=limited(timeout_s))
        return [
            {
                "partition": one.partition,
                "offset": one.offset,
                "timestamp_ms": one.timestamp_ms,
                "key": _text(one.key),
                "value": _text(one.value),
                "headers": [[name, _text(content)] for name, content in one.headers],
            }
            for one in found
        ]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")
