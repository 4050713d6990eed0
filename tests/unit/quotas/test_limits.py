"""Compares the precedence of Kafka's eight levels of quotas with a model that tries the levels one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.shared import client_quota_key
from klamm_throttling.limits import Limit, QuotaLimits
from klamm_throttling.throttling_settings import ClientQuotaSettings

KEY = "producer_byte_rate"
ENTITIES = [
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
]
SHARED_BY = [
    ("alice", "app"),
    ("alice", "app"),
    ("alice", ""),
    ("alice", "app"),
    ("alice", "app"),
    ("alice", ""),
    ("", "app"),
    ("", "app"),
]


def rows(*entities, key=KEY):
    return {
        client_quota_key(entity): {"entity": entity, "quotas": {key: float(number)}}
        for number, entity in enumerate(entities, 1)
    }


@pytest.mark.parametrize("first", range(8))
def test_the_first_level_with_a_quota_applies(first):
    limits = QuotaLimits(ClientQuotaSettings(), rows(*ENTITIES[first:]))
    assert limits.find(KEY, "alice", "app") == Limit(1.0, *SHARED_BY[first])


@pytest.mark.parametrize("entity", ENTITIES)
def test_each_kind_of_quota_is_looked_up_separately(entity):
    limits = QuotaLimits(ClientQuotaSettings(), rows(entity, key="consumer_byte_rate"))
    assert limits.find(KEY, "alice", "app") is None
    assert limits.find("consumer_byte_rate", "alice", "app") is not None


def test_the_throttle_ignores_quotas_of_addresses():
    assert QuotaLimits(ClientQuotaSettings(), rows({"ip": None}, key="connection_creation_rate")).keys == frozenset()


names = st.sampled_from(["alice", "bob", "app", None])
entities = st.one_of(
    st.fixed_dictionaries({"user": names}),
    st.fixed_dictionaries({"client-id": names}),
    st.fixed_dictionaries({"user": names, "client-id": names}),
)


def oracle(table, user, client_id):
    """Return the quota by the order of precedence in Kafka's documentation."""
    tries = [
        ({"user": user, "client-id": client_id}, (user, client_id)),
        ({"user": user, "client-id": None}, (user, client_id)),
        ({"user": user}, (user, "")),
        ({"user": None, "client-id": client_id}, (user, client_id)),
        ({"user": None, "client-id": None}, (user, client_id)),
        ({"user": None}, (user, "")),
        ({"client-id": client_id}, ("", client_id)),
        ({"client-id": None}, ("", client_id)),
    ]
    for entity, shared_by in tries:
        if client_id == "" and "client-id" in entity:
            continue
        row = table.get(client_quota_key(entity))
        if row is not None:
            return Limit(row["quotas"][KEY], *shared_by)
    return None


@given(
    st.lists(entities, max_size=12, unique_by=lambda entity: client_quota_key(entity)),
    st.sampled_from(["alice", "bob", "carol"]),
    st.sampled_from(["app", "bob", "other", ""]),
)
def test_the_precedence_equals_the_models(some, user, client_id):
    table = rows(*some)
    assert QuotaLimits(ClientQuotaSettings(), table).find(KEY, user, client_id) == oracle(table, user, client_id)


def test_the_brokers_table_precedes_the_settings():
    settings = ClientQuotaSettings(
        users={"<default>": {KEY: 10, "request_percentage": 50}, "alice": {KEY: 20}},
        clients={"app": {KEY: 30}},
        user_clients={"alice": {"<default>": {KEY: 40}}},
    )
    limits = QuotaLimits(settings, {})
    assert limits.find(KEY, "bob", "app") == Limit(10, "bob", "")
    assert limits.find(KEY, "alice", "app") == Limit(40, "alice", "app")
    limits = QuotaLimits(settings, rows({"user": None}))
    assert limits.find(KEY, "bob", "app") == Limit(1.0, "bob", "")
    # Quotas that the table does not have for the entity stay as configured.
    assert limits.find("request_percentage", "bob", "app") == Limit(50, "bob", "")
