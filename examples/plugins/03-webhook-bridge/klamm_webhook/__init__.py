"""klamm-webhook: the handler set `webhook`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_api_sets() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "webhook",
        factory="klamm_webhook.api_set:WebhookBridge",
        settings="klamm_webhook.api_set:WebhookSettings",
        summary="posts what producers send to a URL",
    )
