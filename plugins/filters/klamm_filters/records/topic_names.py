"""`TopicNames`: the names of topics that requests name by their ids, learned from responses that have both."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.wire.api_keys import ApiKey

SHARED_KEY: Final = "klamm.filters.topic_names"
LEARNED_FROM: Final = (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
_MAX_NAMES: Final = 100_000
_KEPT_VERDICTS: Final = 10_000


class TopicNames:
    """Of one server, for all its listeners. Any thread may call it."""

    def __init__(self) -> None:
        # Replaced when it is full; single reads and writes need no lock.
        self._names: dict[bytes, str] = {}

    def learn(self, response: Any) -> None:
        """Note the topics of a response of `LEARNED_FROM`."""
        for topic in response.topics:
            if topic.name and any(topic.topic_id) and self._names.get(topic.topic_id) != topic.name:
                if len(self._names) >= _MAX_NAMES:
                    self._names = {}
                self._names[topic.topic_id] = topic.name

    def find(self, name: str, topic_id: bytes) -> str | None:
        """The name of a topic that a message names by one of the two; None for an id that is not known."""
        return name or self._names.get(topic_id)

    def known(self, name: str, topic_id: bytes) -> str:
        """As `find`; raises KafkaError(UNKNOWN_TOPIC_ID): the client asks for Metadata, and then the id is known."""
        found = self.find(name, topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "The topic id is not known here yet.")
        return found


def first_match(patterns: tuple[tuple[str, ...], ...]) -> Callable[[str], int | None]:
    """A function that gives the number of the first list of patterns that a topic matches, or None."""

    def find(topic: str) -> int | None:
        matches = (number for number, each in enumerate(patterns) if any(fnmatchcase(topic, one) for one in each))
        return next(matches, None)

    return lru_cache(_KEPT_VERDICTS)(find)
