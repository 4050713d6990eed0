"""Each decision about what a client asks for is recorded, and names the rule that decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm import RequestContext
from klamm.acl import Verdict
from klamm_authorizers.rules import parse_rule
from klamm_authorizers.settings import StaticSettings
from klamm_authorizers.static import StaticAuthorizer
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.test_authorization import ASKED

NO_DECISIONS = {
    "DescribeTransactions": "allow User:* DESCRIBE topic:t",
    "CreateTopics": "allow User:* DESCRIBE_CONFIGS topic:new",
    "CreateTopics by name": "allow User:* DESCRIBE_CONFIGS topic:new",
    # There is no such group, which is found out before.
    "DeleteShareGroupOffsets": "allow User:* READ topic:t",
    # Of some topic, whichever that is: no rule decides alone.
    "InitProducerId": "allow User:* WRITE topic:some*",
}
"""Rules that decide only what an answer shows, and of the others why no decision names them."""


class Remembering(StaticAuthorizer):
    """Keeps the requests that it was asked about."""

    def __init__(self, settings: StaticSettings) -> None:
        super().__init__(settings)
        self.contexts: list[RequestContext] = []

    def decide(self, context: RequestContext, *question: Any, log_if_denied: bool = True) -> Verdict:
        self.contexts.append(context)
        return super().decide(context, *question, log_if_denied=log_if_denied)


@pytest.mark.parametrize("name", ASKED)
def test_each_decision_is_recorded_with_the_rule_that_decided(tmp_path: Path, name: str) -> None:
    """Of every API: the rules that a request needs are those that its decisions name."""
    asked = ASKED[name]
    guarded = BrokerHarness(tmp_path)
    guarded.open()
    guarded.create_topic("t")
    authorizer = guarded.listener.authorizer = Remembering(StaticSettings(rules=asked.rules))
    guarded.send(asked.request, asked.version)
    guarded.broker.store.write_and_wait([])
    guarded.advance_ms(0)
    assert authorizer.contexts
    decisions = [one for context in authorizer.contexts for one in context.decisions or ()]
    named = {verdict.acl for *_, granted, verdict in decisions if granted and verdict is not None}
    needed = {binding for rule in asked.rules for binding in parse_rule(rule)}
    assert named == needed - set(parse_rule(NO_DECISIONS[name]) if name in NO_DECISIONS else ())
    assert all(verdict is None or verdict.granted is granted for *_, granted, verdict in decisions)
    guarded.broker.close()
