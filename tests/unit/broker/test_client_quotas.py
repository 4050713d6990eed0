"""Tests of DescribeClientQuotas and AlterClientQuotas: filters, Kafka's errors, and restarts."""

import pytest

from klamm import ErrorCode
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, ANY = 0, 1, 2
ALICE = {"user": "alice"}
RATES = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}


def entry(entity, **quotas):
    """Return an entry. The value None removes a quota."""
    ops = [OpData(key, value or 0.0, value is None) for key, value in quotas.items()]
    return RequestEntryData([RequestEntityData(*part) for part in entity.items()], ops)


def alter(harness, *entries, version=1, validate_only=False):
    response = harness.call(AlterClientQuotasRequest(list(entries), validate_only), version)
    return [ErrorCode(one.error_code) for one in response.entries]


def describe(harness, *components, strict=False, version=1):
    request = DescribeClientQuotasRequest([ComponentData(*component) for component in components], strict)
    response = harness.call(request, version)
    if response.error_code:
        assert response.entries is None
        return ErrorCode(response.error_code)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in one.entity)): {v.key: v.value for v in one.values}
        for one in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_stored_quotas_are_described(harness, version):
    assert alter(harness, entry(ALICE, **RATES), version=version) == [ErrorCode.NONE]
    assert describe(harness, ("user", EXACT, "alice"), version=version) == {(("user", "alice"),): RATES}


def test_quotas_are_changed_and_removed_one_by_one(harness):
    alter(harness, entry(ALICE, **RATES))
    assert alter(harness, entry(ALICE, producer_byte_rate=5.0, request_percentage=None)) == [ErrorCode.NONE]
    assert describe(harness) == {(("user", "alice"),): {"producer_byte_rate": 5.0}}
    # Removing a missing quota is not an error.
    assert alter(harness, entry(ALICE, producer_byte_rate=None, consumer_byte_rate=None)) == [ErrorCode.NONE]
    assert describe(harness) == {}


def test_quotas_survive_a_restart(harness):
    alter(harness, entry(ALICE, **RATES), entry({"ip": None}, connection_creation_rate=7.0))
    before = describe(harness)
    harness.listener.services = type(harness.listener.services)()
    harness.reopen()
    assert len(before) == 2
    assert describe(harness) == before


def test_validate_only_changes_nothing(harness):
    bad = entry(ALICE, producer_byte_rate=-1.0)
    assert alter(harness, entry({"user": "bob"}, **RATES), bad, validate_only=True) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert describe(harness) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        entry({}, producer_byte_rate=1.0),
        entry({"tenant": "a"}, producer_byte_rate=1.0),
        entry({"user": ""}, producer_byte_rate=1.0),
        entry({"ip": "10.0.0.1", "user": "a"}, connection_creation_rate=1.0),
        entry({"ip": "not.an.address"}, connection_creation_rate=1.0),
        entry({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=2.0**31),
        entry(ALICE, connection_creation_rate=1.0),
        entry(ALICE, no_such_rate=1.0),
        entry(ALICE, producer_byte_rate=1.5),
        entry(ALICE, producer_byte_rate=1e30),
        entry(ALICE, request_percentage=float("nan")),
        entry(ALICE, request_percentage=float("inf")),
        RequestEntryData([RequestEntityData("user", "a")], [OpData("request_percentage", 1.0)] * 2),
        RequestEntryData([RequestEntityData("user", "a")], [OpData("request_percentage", 0.0)]),
    ],
)
def test_an_invalid_quota_is_refused_for_its_entity_only(harness, wrong):
    good = entry({"user": None, "client-id": "app"}, request_percentage=0.5)
    assert alter(harness, wrong, good) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert list(describe(harness)) == [(("client-id", "app"), ("user", None))]


def test_the_first_of_two_entries_for_an_entity_counts(harness):
    """The response has the entity once, with an error, as in Kafka."""
    first, second = entry(ALICE, producer_byte_rate=1.0), entry(ALICE, producer_byte_rate=2.0)
    assert alter(harness, first, second) == [ErrorCode.INVALID_REQUEST]
    assert describe(harness)[("user", "alice"),] == {"producer_byte_rate": 1.0}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (5.0000001, ErrorCode.NONE),
        (1e-7, ErrorCode.NONE),
        (5.00001, ErrorCode.INVALID_REQUEST),
        (5.9999999, ErrorCode.INVALID_REQUEST),
        (0.9999999, ErrorCode.INVALID_REQUEST),
    ],
)
def test_whole_numbers_are_accepted_with_kafkas_tolerance(harness, value, error):
    """Apache Kafka 4.3.1 answers the same. It keeps the value unchanged."""
    assert alter(harness, entry(ALICE, producer_byte_rate=value)) == [error]
    assert describe(harness) == ({} if error else {(("user", "alice"),): {"producer_byte_rate": value}})


ENTITIES = [
    {"user": "alice"},
    {"user": None},
    {"client-id": "app"},
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"ip": "10.0.0.1"},
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, [0, 1, 2, 3, 4, 5]),
        ((), True, []),
        ((("user", EXACT, "alice"),), False, [0, 3, 4]),
        ((("user", EXACT, "alice"),), True, [0]),
        ((("user", DEFAULT, None),), False, [1]),
        ((("user", ANY, None),), True, [0, 1]),
        ((("user", ANY, None), ("client-id", DEFAULT, None)), True, [4]),
        ((("client-id", EXACT, "app"),), False, [2, 3]),
        ((("ip", ANY, None),), True, [5]),
        ((("ip", DEFAULT, None),), False, []),
    ],
)
def test_filters_match_the_same_quotas_as_in_kafka(harness, components, strict, expected):
    key = {"ip": "connection_creation_rate"}
    alter(harness, *(entry(e, **{key.get(next(iter(e)), "request_percentage"): 1.0}) for e in ENTITIES))
    found = describe(harness, *components, strict=strict)
    assert set(found) == {tuple(sorted(ENTITIES[index].items())) for index in expected}


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ((("", ANY, None),), ErrorCode.INVALID_REQUEST),
        ((("tenant", ANY, None),), ErrorCode.UNSUPPORTED_VERSION),
        ((("user", ANY, None), ("user", EXACT, "a")), ErrorCode.INVALID_REQUEST),
        ((("user", EXACT, None),), ErrorCode.INVALID_REQUEST),
        ((("user", DEFAULT, "a"),), ErrorCode.INVALID_REQUEST),
        ((("user", ANY, "a"),), ErrorCode.INVALID_REQUEST),
        ((("user", 3, None),), ErrorCode.INVALID_REQUEST),
        ((("user", ANY, None), ("ip", ANY, None)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_contradictory_filters_are_refused(harness, components, error):
    assert describe(harness, *components) is error
