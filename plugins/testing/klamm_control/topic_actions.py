"""`TopicActions`: topics and records."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from klamm.testing import Isolation
from klamm_control.controlled import Actions, limited
from klamm_control.routes import route
from klamm_control.values import ConsumedRecord, Count, Done, Encoding, FirstOffset, TimeoutS, TopicName

_Headers = Annotated[Sequence[Sequence[str | None]], "Pairs of name and value."]


class TopicActions(Actions):
    """The actions for topics and records. The threads of the HTTP server call them concurrently."""

    @route("GET", "/topics")
    def topics(self) -> dict[str, int]:
        """Return the topics, each with its number of partitions."""
        return self._server.admin.topics()

    @route("POST", "/topics")
    def create_topic(
        self, name: str | None = None, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> TopicName:
        """Create a topic. Without a name, it gets a random name."""
        name = name or f"topic-{self._server.services.random_bytes(6).hex()}"
        self._server.admin.create_topic(name, partitions, configs)
        return {"name": name}

    @route("DELETE", "/topics/{topic}")
    def delete_topic(self, topic: str) -> Done:
        """Delete a topic."""
        self._server.admin.delete_topics(topic)
        return {}

    @route("POST", "/topics/{topic}/records")
    def produce(
        self,
        topic: str,
        values: Sequence[str | None],
        key: str | None = None,
        partition: int = 0,
        headers: _Headers = (),
        timestamp_ms: int | None = None,
        encoding: Encoding = "utf-8",
    ) -> FirstOffset:
        """Append a record for each value. Return the offset of the first record."""
        coder = _CODERS[encoding]
        pairs = [_pair(each, coder) for each in headers]
        contents = [coder.packed(each) for each in values]
        offset = self._server.admin.produce(
            topic, *contents, key=coder.packed(key), partition=partition, headers=pairs, timestamp_ms=timestamp_ms
        )
        return {"offset": offset}

    @route("GET", "/topics/{topic}/records")
    def consume(
        self,
        topic: str,
        count: Count = None,
        timeout_s: TimeoutS = 10.0,
        isolation: Isolation = "read_committed",
        partition: int | None = None,
        offset: int | None = None,
        encoding: Encoding = "utf-8",
    ) -> list[ConsumedRecord]:
        """Return the records of a topic. With `count`, wait for this number of records.

        Records of open or aborted transactions are left out unless `isolation` is `read_uncommitted`.
        """
        text = _CODERS[encoding].shown
        found = self._server.admin.consume(
            topic, count, partition=partition, offset=offset, isolation=isolation, timeout_s=limited(timeout_s)
        )
        return [
            {
                "partition": one.partition,
                "offset": one.offset,
                "timestamp_ms": one.timestamp_ms,
                "key": text(one.key),
                "value": text(one.value),
                "headers": [[name, text(content)] for name, content in one.headers],
            }
            for one in found
        ]


class _Coder:
    """Conversion between bytes and text as UTF-8."""

    def packed(self, text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    def shown(self, content: bytes | None) -> str | None:
        return None if content is None else content.decode("utf-8", "replace")


class _Base64(_Coder):
    """Conversion between bytes and text in base64."""

    def packed(self, text: str | None) -> bytes | None:
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(f'"{text}" is not base64: {error}') from error

    def shown(self, content: bytes | None) -> str | None:
        return None if content is None else base64.b64encode(content).decode()


_CODERS: Final[dict[str, _Coder]] = {"utf-8": _Coder(), "base64": _Base64()}


def _pair(header: Sequence[str | None], coder: _Coder) -> tuple[str, bytes | None]:
    if len(header) != 2 or header[0] is None:
        raise ValueError(f'"headers" are pairs of name and value, not {list(header)}')
    return header[0], coder.packed(header[1])
