"""`TopicNames`: the names of topics that requests identify by id, for filters whose settings name topics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from klamm import (
    ErrorCode,
    KafkaError,
    ListenerContext,
    RateLimitedLog,
    RequestContext,
    RequestFilter,
    clipped,
    escape_control_characters,
)
from klamm.filters import TopicNames as Lookup
from klamm.wire.api_keys import ApiKey

log = logging.getLogger("klamm.filters")

_LEARNED_FROM: Final = (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
_MAX_NAMES: Final = 100_000
_KEPT_VERDICTS: Final = 10_000
_LONGEST_NAME: Final = 249
"""Maximum length of a topic name. Clients may send longer names, but verdicts on them are not cached."""
_REFUSED: Final = ""
_LINES_PER_MINUTE: Final = 5


class TopicNames:
    """The names of topics, for one filter. Any thread may call it.

    The names come from the handler set. If it provides none, the filter learns them from responses. Listeners share no
    names, because they may belong to different clusters.
    """

    def __init__(self) -> None:
        # `learn` replaces it when it is full. Single reads and writes need no lock.
        self._learned: dict[bytes, str] = {}
        self._ask: Lookup | None = None
        self._listener = ""
        self._log: RateLimitedLog

    def open(self, listener: ListenerContext, owner: RequestFilter) -> None:
        """Use the names of the listener's handler set from now on, if it provides them."""
        self._listener = listener.name
        self._ask = listener.topic_names(owner)
        self._log = RateLimitedLog(log, listener.services.scheduler.schedule, burst=_LINES_PER_MINUTE)

    @property
    def api_keys(self) -> tuple[int, ...]:
        """Return the APIs whose responses `learn` needs."""
        return _LEARNED_FROM if self._ask is None else ()

    def learn(self, response: Any) -> None:
        """Note the topics of a response. `api_keys` names the responses that qualify.

        A topic keeps its name and its id as long as it exists. So if an id appears with a second name, it has no name
        from then on.
        """
        for topic in response.topics:
            if not topic.name or not any(topic.topic_id):
                continue
            known = self._learned.get(topic.topic_id)
            if known in (topic.name, _REFUSED):
                continue
            if known is None:
                if len(self._learned) >= _MAX_NAMES:
                    self._learned = {}
                self._learned[topic.topic_id] = topic.name
                continue
            self._learned[topic.topic_id] = _REFUSED
            # At a limited rate, because one response may have any number of such ids.
            self._log.log(
                "renamed",
                logging.ERROR,
                "listener=%s: the topic id %s had the name %s and now has the name %s: requests with it are refused",
                self._listener,
                topic.topic_id.hex(),
                clipped(escape_control_characters(known)),
                clipped(escape_control_characters(topic.name)),
            )

    def find(self, name: str, topic_id: bytes, context: RequestContext) -> str | None:
        """Return the name of a topic that a message identifies by name or id; None for an unknown id."""
        if name:
            return name
        found = self._learned.get(topic_id) if self._ask is None else self._ask(topic_id, context)
        return found or None

    def known(self, name: str, topic_id: bytes, context: RequestContext) -> str:
        """Return the name like `find`. For an unknown id, raises KafkaError(UNKNOWN_TOPIC_ID): clients then send
        Metadata.
        """
        found = self.find(name, topic_id, context)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "The topic id is not known here yet.")
        return found


def first_match(patterns: tuple[tuple[str, ...], ...]) -> Callable[[str], int | None]:
    """Return a function that returns the index of the first list of patterns that a topic matches, or None."""

    def find(topic: str) -> int | None:
        matches = (number for number, each in enumerate(patterns) if any(fnmatchcase(topic, one) for one in each))
        return next(matches, None)

    kept = lru_cache(_KEPT_VERDICTS)(find)
    return lambda topic: kept(topic) if len(topic) <= _LONGEST_NAME else find(topic)
