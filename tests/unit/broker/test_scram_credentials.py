"""Tests of AlterUserScramCredentials and DescribeUserScramCredentials: stored, refused and described credentials."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from klamm import ErrorCode
from klamm.sasl import ScramCredential, ScramMechanism
from klamm.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.unit.broker.broker_harness import BrokerHarness

SHA_256, SHA_512 = 1, 2
SALT = b"some salt"


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096, password: str = "secret"):  # noqa: S107
    scram = ScramMechanism.of_type(mechanism) or ScramMechanism.SCRAM_SHA_256
    salted = scram.salted_password(password.encode(), SALT, iterations)
    return ScramCredentialUpsertion(user, mechanism, iterations, SALT, salted)


def alter(harness: BrokerHarness, *changes) -> dict[str, int]:
    deletions = [each for each in changes if isinstance(each, ScramCredentialDeletion)]
    upsertions = [each for each in changes if isinstance(each, ScramCredentialUpsertion)]
    response = harness.call(AlterUserScramCredentialsRequest(deletions, upsertions), 0)
    return {result.user: result.error_code for result in response.results}


def describe(harness: BrokerHarness, *users: str):
    request = DescribeUserScramCredentialsRequest([UserName(user) for user in users] if users else None)
    return [
        (each.user, each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in harness.call(request, 0).results
    ]


def test_stored_credentials_prove_the_password_and_survive_a_restart(harness: BrokerHarness) -> None:
    assert alter(harness, upsertion("alice"), upsertion("bob", SHA_512, 8192)) == {"alice": 0, "bob": 0}
    harness.reopen()
    row = harness.broker.scram_credentials.rows["SCRAM-SHA-256:alice"]
    credential = ScramCredential.from_row(row)
    assert credential.verifies("secret")
    assert not credential.verifies("Secret")
    assert credential == ScramCredential.from_password(ScramMechanism.SCRAM_SHA_256, "secret", SALT)
    assert describe(harness) == [("alice", 0, [(SHA_256, 4096)]), ("bob", 0, [(SHA_512, 8192)])]


def test_no_stored_value_can_be_used_to_log_in(harness: BrokerHarness) -> None:
    change = upsertion("alice")
    alter(harness, change)
    kept = json.dumps(dict(harness.broker.scram_credentials.rows)).encode()
    assert b64encode(change.salted_password) not in kept
    assert b"secret" not in kept


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion("alice", SHA_256, 4096, SALT, b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("alice", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("alice", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialDeletion("alice", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_refused_alteration_does_not_affect_others_in_the_request(harness, change, code) -> None:
    assert alter(harness, change, upsertion("other")) == {change.name: code, "other": 0}
    assert describe(harness) == [("other", 0, [(SHA_256, 4096)])]


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_lowest_and_highest_iterations_are_allowed(harness: BrokerHarness, iterations: int) -> None:
    assert alter(harness, upsertion("alice", iterations=iterations)) == {"alice": 0}


def test_a_user_twice_in_one_request_is_refused_with_any_mechanisms(harness: BrokerHarness) -> None:
    alter(harness, upsertion("alice"))
    for changes in (
        (upsertion("alice", SHA_256), upsertion("alice", SHA_512)),
        (ScramCredentialDeletion("alice", SHA_256), upsertion("alice", SHA_512)),
        (ScramCredentialDeletion("alice", SHA_256), ScramCredentialDeletion("alice", SHA_512)),
    ):
        assert alter(harness, *changes) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert describe(harness) == [("alice", 0, [(SHA_256, 4096)])]


def test_the_first_error_of_a_user_named_twice_is_reported(harness: BrokerHarness) -> None:
    gone = ScramCredentialDeletion("alice", SHA_256)
    assert alter(harness, gone, upsertion("alice")) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert alter(harness, gone, gone) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    few = upsertion("alice", iterations=1)
    assert alter(harness, few, upsertion("alice")) == {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert alter(harness, upsertion("alice"), few) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert describe(harness) == []


def test_a_deletion_removes_only_one_mechanism(harness: BrokerHarness) -> None:
    alter(harness, upsertion("alice"))
    alter(harness, upsertion("alice", SHA_512))
    assert describe(harness, "alice") == [("alice", 0, [(SHA_256, 4096), (SHA_512, 4096)])]
    assert alter(harness, ScramCredentialDeletion("alice", SHA_256)) == {"alice": 0}
    assert describe(harness, "alice") == [("alice", 0, [(SHA_512, 4096)])]


def test_describe_reports_duplicates_and_unknown_users(harness: BrokerHarness) -> None:
    alter(harness, upsertion("alice"))
    assert describe(harness, "alice", "nobody", "twice", "twice") == [
        ("alice", 0, [(SHA_256, 4096)]),
        ("nobody", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("twice", ErrorCode.DUPLICATE_RESOURCE, []),
    ]
