"""klamm-topic-prefix: the filter `team_topics`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_filters() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "team_topics",
        factory="klamm_topic_prefix.filter:TopicPrefix",
        settings="klamm_topic_prefix.filter:TopicPrefixSettings",
        summary="gives the clients of a listener topics of their own",
    )
