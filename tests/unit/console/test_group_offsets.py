"""The lag of groups, and what the page changes in their offsets."""

import pytest

from klamm.testing import EmbeddedServer, MovingClock
from klamm_console import cluster
from tests.unit.console.conftest import CONSOLE, HOSTILE, Browser, commit


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def served(request):
    with EmbeddedServer(CONSOLE, nodes=request.param, clock=MovingClock()) as running:
        running.create_topic("t", 3)
        for partition in range(3):
            for value in ("a", "b", "c", "d"):
                running.produce("t", value, partition=partition)
        page = Browser(running)
        page.log_in()
        yield running, page


def committed(page, group="g"):
    return [row["committed"] for row in page(f"group?name={group}")[1]["offsets"]]


def test_the_list_of_groups_has_the_lag_of_each(served):
    running, page = served
    commit(running, "g", "t", 1, 2, 4)
    commit(running, HOSTILE, "t", 0)
    lags = {row["name"]: row["lag"] for row in page("groups")[1]}
    assert lags == {"g": 5, HOSTILE: 4}


def test_the_lag_of_the_list_is_bounded(served, monkeypatch):
    running, page = served
    for group in ("g1", "g2", "g3"):
        commit(running, group, "t", 1, 1)
    monkeypatch.setattr(cluster, "_LAG_PARTITIONS", 1)
    assert [row["lag"] for row in page("groups")[1]] == [None] * 3
    monkeypatch.setattr(cluster, "_LAG_PARTITIONS", 2)
    monkeypatch.setattr(cluster, "_LAG_GROUPS", 2)
    assert sorted(row["lag"] or 0 for row in page("groups")[1]) == [0, 6, 6]


@pytest.mark.parametrize(
    ("to", "offsets"),
    [
        ({"to": "earliest"}, [0, 0, 0]),
        ({"to": "latest"}, [4, 4, 4]),
        ({"to": "offset", "offset": 2}, [2, 2, 2]),
        ({"to": "offset", "offset": 99}, [4, 4, 4]),
        ({"to": "time", "timestamp_ms": 0}, [0, 0, 0]),
        ({"to": "time", "timestamp_ms": 1 << 50}, [4, 4, 4]),
        ({"to": "latest", "partition": 1}, [1, 4, 1]),
    ],
    ids=str,
)
def test_offsets_of_a_group_without_members_are_reset(served, to, offsets):
    running, page = served
    commit(running, "g", "t", 1, 1, 1)
    assert page("reset_offsets", {"name": "g", "topic": "t", **to}) == (200, {})
    assert committed(page) == offsets


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"to": "nowhere"}, 400),
        ({"to": "offset"}, 400),
        ({"to": "offset", "offset": -1}, 400),
        ({"to": "offset", "offset": 1 << 63}, 400),
        ({"to": "time", "timestamp_ms": "now"}, 400),
        ({"to": "latest", "partition": True}, 400),
        ({"to": "latest", "partition": 3}, 409),
        ({"to": "latest", "topic": "none"}, 409),
        ({"to": "latest", "topic": HOSTILE}, 409),
    ],
    ids=str,
)
def test_a_wrong_reset_changes_nothing(served, wrong, status):
    running, page = served
    commit(running, "g", "t", 1, 1, 1)
    found = page("reset_offsets", {"name": "g", "topic": "t", **wrong})
    assert found[0] == status
    assert bool(found[1]["name"]) is (status == 409), "Kafka's name of the error"
    assert committed(page) == [1, 1, 1]


def test_offsets_are_deleted_for_one_partition_and_for_all(served):
    running, page = served
    commit(running, "g", "t", 1, 2, 3)
    assert page("delete_offsets", {"name": "g", "topic": "t", "partition": 1}) == (200, {})
    assert committed(page) == [1, 3]
    assert page("delete_offsets", {"name": "g", "topic": "t"}) == (200, {})
    assert committed(page) == []
    assert page("delete_offsets", {"name": "none", "topic": "t", "partition": 0})[1]["name"] == "GROUP_ID_NOT_FOUND"


def test_a_group_with_members_keeps_its_offsets(served):
    kafka = pytest.importorskip("confluent_kafka")
    running, page = served
    consumer = kafka.Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    try:
        running.wait_until(lambda: consumer.poll(0.1) is not None)
        consumer.commit(asynchronous=False)
        before = committed(page)
        status, found = page("reset_offsets", {"name": "g", "topic": "t", "to": "earliest"})
        assert (status, found["name"]) == (409, "UNKNOWN_MEMBER_ID")
        assert "has members" in found["error"]
        index = page("group?name=g")[1]["offsets"][0]["partition"]
        status, found = page("delete_offsets", {"name": "g", "topic": "t", "partition": index})
        assert (status, found["name"]) == (409, "GROUP_SUBSCRIBED_TO_TOPIC")
        assert committed(page) == before
    finally:
        consumer.close()


def test_a_user_without_the_right_changes_no_offsets(secure):
    secure.produce("orders", "a", "b")
    commit(secure, "readers", "orders", 1)
    alice = Browser(secure)
    alice.log_in("alice")
    for act in ("reset_offsets", "delete_offsets"):
        status, found = alice(act, {"name": "readers", "topic": "orders", "partition": 0, "to": "latest"})
        assert (status, found["name"]) == (403, "GROUP_AUTHORIZATION_FAILED")
    admin = Browser(secure)
    admin.log_in("admin")
    assert committed(admin, "readers") == [1]


def test_a_refusal_of_the_coordinator_has_its_reason():
    acl = ["listeners.default.authorizer=acl", 'listeners.default.acl.super_users=["User:root"]']
    with EmbeddedServer([*CONSOLE, *acl], nodes=3) as running:
        page = Browser(running)
        page.log_in()
        act = {"name": "g", "topic": "t", "partition": 0}
        refused = [page("delete_offsets", act), page("delete_group", act), page("group?name=g")]
        assert [(status, found["name"]) for status, found in refused] == [(403, "GROUP_AUTHORIZATION_FAILED")] * 3
