"""Tests of delegation tokens: who may create, see, renew and end them, their lifetime, and their secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from klamm import ErrorCode, KafkaPrincipal
from klamm.api.pending import NotInlineError
from klamm.sasl import DELEGATION_TOKENS, DelegationTokenCache, ScramMechanism
from klamm.wire.messages import describe_delegation_token
from klamm.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from klamm.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from klamm.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm_authorizers.authorizer_settings import StaticSettings
from klamm_authorizers.static import StaticAuthorizer
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.handlers.k41_describe_delegation_token import tokens_of_owners
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.test_bounded_work import CountedName, SmallReply

ALICE, BOB, CAROL = (KafkaPrincipal(name) for name in ("alice", "bob", "carol"))
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "token.key"
    file.write_text("the key\n")
    return file


@pytest.fixture
def tokens(tmp_path: Path, key_file: Path) -> Iterator[BrokerHarness]:
    harness = BrokerHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open(delegation_token_secret_key_file=key_file)
    harness.listener.security_protocol = "SASL_PLAINTEXT"
    harness.listener.authorizer = StaticAuthorizer(StaticSettings())
    harness.principal = ALICE
    yield harness
    harness.broker.close()


def create(
    harness: BrokerHarness, *renewers: str, max_lifetime_ms: int = -1, owner: str | None = None, version: int = 3
):
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers("User", name) for name in renewers], max_lifetime_ms=max_lifetime_ms
    )
    if version >= 3:
        request.owner_principal_type, request.owner_principal_name = "User" if owner else None, owner
    return harness.call(request, version)


def seen(harness: BrokerHarness, *owners: str, by: KafkaPrincipal = ALICE) -> list[str]:
    harness.principal = by
    wanted = [DescribeDelegationTokenOwner("User", name) for name in owners] if owners else None
    response = harness.call(DescribeDelegationTokenRequest(wanted), 3)
    assert response.error_code == 0
    return [token.token_id for token in response.tokens]


def renew(harness: BrokerHarness, secret: bytes, by: KafkaPrincipal = ALICE, period_ms: int = -1):
    harness.principal = by
    return harness.call(RenewDelegationTokenRequest(secret, period_ms), 2)


def expire(harness: BrokerHarness, secret: bytes, by: KafkaPrincipal = ALICE, period_ms: int = -1):
    harness.principal = by
    return harness.call(ExpireDelegationTokenRequest(secret, period_ms), 2)


def cached(harness: BrokerHarness):
    return harness.listener.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache).tokens


def measured(harness: BrokerHarness) -> dict[str, float]:
    prefix = "klamm:type=DelegationTokens,name="
    return {
        metric.name.removeprefix(prefix): metric.samples[0].value
        for metric in harness.listener.services.metrics.collect()
        if metric.name.startswith(prefix)
    }


def test_a_token_has_kafkas_hmac_times_and_credentials(tokens: BrokerHarness) -> None:
    now_ms = tokens.clock.wall_ms()
    token = create(tokens, "bob")
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "alice")
    assert token.hmac == hmac.digest(b"the key", token.token_id.encode(), hashlib.sha512)
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms) == (now_ms, now_ms + DAY_MS)
    assert token.max_timestamp_ms == now_ms + 7 * DAY_MS
    for mechanism in ScramMechanism:
        credential = cached(tokens)[token.token_id].credentials[mechanism]
        assert credential.verifies(base64.b64encode(token.hmac).decode())


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_creates_tokens(tokens: BrokerHarness, version: int) -> None:
    token = create(tokens, version=version)
    assert (token.error_code, token.principal_name) == (0, "alice")
    assert token.token_requester_principal_name == ("alice" if version == 3 else "")


def test_a_token_may_have_a_shorter_lifetime_but_no_longer_one(tokens: BrokerHarness) -> None:
    now_ms = tokens.clock.wall_ms()
    short = create(tokens, max_lifetime_ms=HOUR_MS)
    assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (now_ms + HOUR_MS, now_ms + HOUR_MS)
    assert create(tokens, max_lifetime_ms=100 * DAY_MS).max_timestamp_ms == now_ms + 7 * DAY_MS


def test_the_cost_of_removing_expired_tokens_grows_linearly(tokens: BrokerHarness) -> None:
    count = 1000
    create(tokens)
    cache = tokens.listener.services.shared.once(DELEGATION_TOKENS, DelegationTokenCache)
    (token,) = cache.tokens.values()
    names = [CountedName(f"token-{number}") for number in range(count)]
    cache.tokens = {name: replace(token, token_id=CountedName(name)) for name in names}
    CountedName.compared = 0
    tokens.broker.delegation_tokens.remove_expired(token.max_timestamp_ms + 1)
    assert cache.tokens == {}
    assert CountedName.compared < 10 * count


def test_a_request_that_describes_tokens_waits_for_a_turn(
    tokens: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any authenticated client may create many tokens, and the request reads them all."""
    monkeypatch.setattr("klamm.api.context._INLINE_MAX_ANSWER_ELEMENTS", 2)
    request = DescribeDelegationTokenRequest([])

    def run() -> None:
        reply = SmallReply(describe_delegation_token, request, 3)
        context = tokens.context(reply, request.API_KEY, 3)
        tokens_of_owners(tokens.broker.services_of(0), request, context)

    for _ in range(2):
        create(tokens)
    run()
    create(tokens)
    with pytest.raises(NotInlineError):
        run()


def test_an_owner_has_no_more_tokens_than_allowed(tokens: BrokerHarness, key_file: Path) -> None:
    tokens.reopen(delegation_token_secret_key_file=key_file, delegation_token_max_per_owner=2)
    first = create(tokens)
    assert create(tokens, max_lifetime_ms=HOUR_MS).error_code == 0
    refused = create(tokens)
    assert (refused.error_code, refused.token_id, refused.hmac) == (ErrorCode.POLICY_VIOLATION, "", b"")
    assert measured(tokens) == {"Count": 2, "MostOfOneOwner": 2}
    # Other owners have their own limit, and loaded tokens count.
    tokens.principal = BOB
    assert create(tokens).error_code == 0
    tokens.reopen(delegation_token_secret_key_file=key_file, delegation_token_max_per_owner=2)
    tokens.principal = ALICE
    assert create(tokens).error_code == ErrorCode.POLICY_VIOLATION
    assert measured(tokens) == {"Count": 3, "MostOfOneOwner": 2}
    # An expired token makes room before the next periodic search for expired tokens.
    assert expire(tokens, first.hmac).error_code == 0
    assert create(tokens).error_code == 0
    tokens.clock.advance_ms(HOUR_MS + 1)
    assert create(tokens).error_code == 0
    assert create(tokens).error_code == ErrorCode.POLICY_VIOLATION


def test_tokens_survive_a_restart_although_their_secret_is_not_stored(tokens: BrokerHarness, key_file: Path) -> None:
    token = create(tokens)
    kept = json.dumps(
        {key: dict(row) for key, row in tokens.listener.services.shared.table(DELEGATION_TOKENS).rows.items()}
    )
    assert base64.b64encode(token.hmac).decode() not in kept
    assert token.hmac.hex() not in kept
    cached(tokens).clear()
    tokens.reopen(delegation_token_secret_key_file=key_file)
    assert seen(tokens) == [token.token_id]
    assert renew(tokens, token.hmac).error_code == 0


def test_tokens_are_invalid_while_another_key_is_configured(tokens: BrokerHarness, key_file: Path) -> None:
    token = create(tokens)
    key_file.write_text("another key")
    tokens.reopen(delegation_token_secret_key_file=key_file)
    assert cached(tokens) == {}
    assert renew(tokens, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    key_file.write_text("the key")
    tokens.reopen(delegation_token_secret_key_file=key_file)
    assert renew(tokens, token.hmac).error_code == 0


def test_owner_and_renewers_can_renew_up_to_the_maximum(tokens: BrokerHarness) -> None:
    token = create(tokens, "bob")
    tokens.clock.advance_ms(HOUR_MS)
    now_ms = tokens.clock.wall_ms()
    assert renew(tokens, token.hmac, ALICE).expiry_timestamp_ms == now_ms + DAY_MS
    assert renew(tokens, token.hmac, BOB, 2 * HOUR_MS).expiry_timestamp_ms == now_ms + 2 * HOUR_MS
    assert renew(tokens, token.hmac, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for _ in range(7):
        assert renew(tokens, token.hmac, ALICE).error_code == 0
        tokens.clock.advance_ms(DAY_MS - 1)
    assert renew(tokens, token.hmac, ALICE).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_that_was_not_renewed_is_expired_and_then_forgotten(tokens: BrokerHarness) -> None:
    token = create(tokens)
    tokens.clock.advance_ms(DAY_MS + 1)
    assert renew(tokens, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(tokens, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    tokens.advance_ms(HOUR_MS)
    assert renew(tokens, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert cached(tokens) == {}


def test_expire_sets_an_earlier_end_or_ends_at_once(tokens: BrokerHarness) -> None:
    token = create(tokens, "bob")
    assert expire(tokens, token.hmac, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(tokens, token.hmac, BOB, HOUR_MS).expiry_timestamp_ms == tokens.clock.wall_ms() + HOUR_MS
    ended = expire(tokens, token.hmac, BOB)
    assert (ended.error_code, ended.expiry_timestamp_ms) == (0, tokens.clock.wall_ms())
    assert expire(tokens, token.hmac, BOB).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert cached(tokens) == {}


def test_each_client_sees_only_its_own_tokens(tokens: BrokerHarness) -> None:
    own = create(tokens, "bob").token_id
    assert seen(tokens, by=ALICE) == seen(tokens, by=BOB) == seen(tokens, "alice", by=BOB) == [own]
    assert seen(tokens, by=CAROL) == seen(tokens, "alice", by=CAROL) == seen(tokens, "carol", by=ALICE) == []
    tokens.principal = ALICE
    assert tokens.call(DescribeDelegationTokenRequest([]), 3).tokens == []


@pytest.mark.parametrize(
    "rule", ["allow User:carol DESCRIBE delegation_token:{token}", "allow User:carol DESCRIBE_TOKENS user:User:alice"]
)
def test_other_clients_see_tokens_that_a_rule_allows(tokens: BrokerHarness, rule: str) -> None:
    token_id = create(tokens).token_id
    tokens.listener.authorizer = StaticAuthorizer(StaticSettings(rules=(rule.format(token=token_id),)))
    assert seen(tokens, by=CAROL) == [token_id]
    assert seen(tokens, by=BOB) == []


def test_a_token_for_another_user_needs_a_permission(tokens: BrokerHarness) -> None:
    denied = create(tokens, owner="bob")
    assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (denied.principal_name, denied.token_id, denied.hmac, denied.issue_timestamp_ms) == ("bob", "", b"", -1)
    tokens.listener.authorizer = StaticAuthorizer(
        StaticSettings(rules=("allow User:alice CREATE_TOKENS user:User:bob",))
    )
    token = create(tokens, owner="bob")
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "alice")
    assert seen(tokens, by=BOB) == seen(tokens, by=ALICE) == [token.token_id]


def test_renewers_must_be_users(tokens: BrokerHarness) -> None:
    request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("Group", "admins")])
    assert tokens.call(request, 3).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert cached(tokens) == {}


@pytest.mark.parametrize(
    ("protocol", "principal"),
    [
        ("PLAINTEXT", ALICE),
        ("SSL", KafkaPrincipal("ANONYMOUS")),
        ("SASL_SSL", KafkaPrincipal("alice", token_authenticated=True)),
    ],
)
def test_anonymous_clients_and_clients_with_a_token_get_no_token(tokens: BrokerHarness, protocol, principal) -> None:
    token = create(tokens)
    tokens.listener.security_protocol, tokens.principal = protocol, principal
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert create(tokens).error_code == refused
    assert tokens.call(DescribeDelegationTokenRequest(None), 3).error_code == refused
    assert renew(tokens, token.hmac, principal).error_code == refused
    assert expire(tokens, token.hmac, principal).error_code == refused


def test_without_a_key_there_are_no_tokens(harness: BrokerHarness) -> None:
    harness.listener.security_protocol, harness.principal = "SASL_SSL", ALICE
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(harness).error_code == disabled
    assert renew(harness, b"x").error_code == disabled
    assert expire(harness, b"x").error_code == disabled
    assert harness.call(DescribeDelegationTokenRequest(None), 3).error_code == disabled


def test_a_key_that_cannot_be_read_is_reported_with_its_setting(tmp_path: Path, key_file: Path) -> None:
    def problems(**settings: object) -> list[tuple[str, str]]:
        return list(BrokerSettings(**settings).problems())  # type: ignore[arg-type]

    name = "delegation.token.secret.key"
    absent = tmp_path / "absent"
    assert problems() == problems(delegation_token_secret_key_file=key_file) == []
    assert problems(delegation_token_secret_key_file=absent) == [
        (f"{name}.file", f"{absent}: No such file or directory")
    ]
    assert problems(delegation_token_secret_key_env="KLAMM_ABSENT") == [
        (f"{name}.env", 'the environment variable "KLAMM_ABSENT" is not set or empty')
    ]
    (both,) = problems(delegation_token_secret_key_file=key_file, delegation_token_secret_key_env="KLAMM_KEY")
    assert both == (f"{name}.file", f"{name} comes from a file or from the environment, not from both")


def test_the_broker_does_not_start_with_an_empty_key_or_two_keys(tmp_path: Path, key_file: Path) -> None:
    key_file.write_text(" \n")
    with pytest.raises(ValueError, match="is empty"):
        BrokerHarness(tmp_path).open(delegation_token_secret_key_file=key_file)
    with pytest.raises(ValueError, match="not from both"):
        BrokerHarness(tmp_path).open(
            delegation_token_secret_key_file=key_file, delegation_token_secret_key_env="KLAMM_KEY"
        )
