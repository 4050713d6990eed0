"""Tests of dead-letter topics of share groups (KIP-1191): which records get a dead letter, and its content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.records import Record, decode_records, iterate_batches
from klamm_broker.share.run import Run
from tests.unit.share.test_share_fetch import ACCEPT, REJECT, RELEASE, Shares
from tests.waiting import wait_until

GAP = 0
TOPIC = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
ENABLED = {"errors_deadletterqueue_group_enable": "true"}
REJECTED = b"Offset rejected by client."
EXCEEDED = b"Offset delivery count exceeded the threshold."


def configure(shares: Shares, **values: str) -> None:
    configs = {"share.auto.offset.reset": "earliest", TOPIC: "dlq.t"}
    shares.harness.broker.group_configs.replace("g", configs | values)


def letters(shares: Shares, topic: str = "dlq.t", partition: int = 0) -> list[Record]:
    found = shares.harness.broker.topics.get(topic)
    if found is None:
        return []
    got = found.partitions[partition].read(0, 1 << 20, -1, min_one_message=True, committed_only=False)
    data = got.records if isinstance(got.records, bytes) else got.records.read_bytes()
    return [record for _, batch in iterate_batches(data) for record in decode_records(batch)]


def wait_for_letters(shares: Shares, count: int, topic: str = "dlq.t") -> list[Record]:
    wait_until(lambda: len(letters(shares, topic)) >= count)
    return letters(shares, topic)


def headers(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


@pytest.mark.parametrize("copies", [False, True])
def test_rejected_records_get_dead_letters(shares: Shares, copies: bool) -> None:
    configure(shares, **{COPY: str(copies).lower()})
    shares.harness.create_topic("dlq.t", **ENABLED)
    shares.produce(b"0", b"1", b"2", b"3")
    assert shares.acquired("a", 0) == [(0, 3, 1)]
    shares.acknowledge("a", 1, (0, 0, [ACCEPT]), (1, 2, [REJECT]), (3, 3, [GAP]))
    found = wait_for_letters(shares, 2)
    assert [each.value for each in found] == ([b"1", b"2"] if copies else [None, None])
    context = {"topic": b"t", "partition": b"0", "group": b"g", "delivery.count": b"1", "message": REJECTED}
    assert [headers(each) for each in found] == [{**context, "offset": offset} for offset in (b"1", b"2")]
    wait_until(lambda: shares.offsets()[0] == (4, 0))


def test_records_that_were_delivered_too_often_get_dead_letters(shares: Shares) -> None:
    configure(shares, **{"share.delivery.count.limit": "2"})
    shares.harness.create_topic("dlq.t", **ENABLED)
    shares.produce(b"0", b"1")
    assert shares.acquired("a", 0) == [(0, 1, 1)]
    shares.acknowledge("a", 1, (0, 1, [RELEASE]))
    assert shares.acquired("a", 2) == [(0, 1, 2)]
    shares.acknowledge("a", 3, (0, 0, [REJECT]), (1, 1, [RELEASE]))
    found = [headers(each) for each in wait_for_letters(shares, 2)]
    assert [(each["offset"], each["delivery.count"], each["message"]) for each in found] == [
        (b"0", b"2", REJECTED),
        (b"1", b"2", EXCEEDED),
    ]


def test_a_lock_that_times_out_for_the_last_time_causes_a_dead_letter(shares: Shares) -> None:
    configure(shares, **{"share.delivery.count.limit": "2"})
    shares.harness.create_topic("dlq.t", **ENABLED)
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    shares.acknowledge("a", 1, (0, 0, [RELEASE]))
    assert shares.acquired("a", 2) == [(0, 0, 2)]
    shares.harness.advance_ms(30_001)
    assert headers(wait_for_letters(shares, 1)[0])["message"] == EXCEEDED


@pytest.mark.parametrize(
    ("name", "configs", "settings", "problem"),
    [
        ("dlq.t", None, {}, "there is no topic dlq.t, and errors.deadletterqueue.auto.create.topics.enable is false"),
        ("dlq.t", {}, {}, "the topic dlq.t does not have errors.deadletterqueue.group.enable=true"),
        ("other", ENABLED, {}, 'the name "other" does not begin with errors.deadletterqueue.topic.name.prefix'),
    ],
)
def test_records_without_a_possible_dead_letter_are_archived_and_logged(
    shares: Shares, caplog: pytest.LogCaptureFixture, name: str, configs: Any, settings: Any, problem: str
) -> None:
    configure(shares, **{TOPIC: name})
    if configs is not None:
        shares.harness.create_topic(name, **configs)
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    shares.acknowledge("a", 1, (0, 0, [REJECT]))
    wait_until(lambda: shares.offsets()[0] == (1, 0))
    assert problem in caplog.text
    assert letters(shares, name) == []


def test_the_topic_is_created_if_the_broker_may(shares: Shares) -> None:
    shares.harness.reopen(
        errors_deadletterqueue_auto_create_topics_enable=True,
        errors_deadletterqueue_topic_name_prefix="",
        num_partitions=2,
    )
    configure(shares, **{TOPIC: "letters"})
    shares.join("a")
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    shares.acknowledge("a", 1, (0, 0, [REJECT]))
    assert len(wait_for_letters(shares, 1, "letters")) == 1
    topic = shares.harness.broker.topics.get("letters")
    assert topic is not None
    assert len(topic.partitions) == 2
    assert topic.overrides == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }


class Postbox:
    """A stand-in that keeps dead letters without writing them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, int, bool]] = []

    def is_on(self, _group_id: str) -> bool:
        return True

    def send(self, _live: Any, given_up: Sequence[Run]) -> None:
        self.sent += [(run.first, run.last, run.delivery_count, run.is_rejected) for run in given_up]


def test_a_dead_letter_that_a_stop_left_unwritten_is_written_after_the_start(shares: Shares) -> None:
    postbox = shares.harness.broker.shares.letters = Postbox()
    configure(shares)
    shares.harness.create_topic("dlq.t", **ENABLED)
    shares.produce(b"0", b"1")
    assert shares.acquired("a", 0) == [(0, 1, 1)]
    shares.acknowledge("a", 1, (0, 1, [REJECT]))
    assert postbox.sent == [(0, 1, 1, True)]
    assert shares.offsets()[0] == (0, 2), "it is not delivered again, and not done"
    assert shares.acquired("a", 2) == []
    assert len(postbox.sent) == 1
    shares.harness.reopen()
    found = wait_for_letters(shares, 2)
    assert [headers(each)["message"] for each in found] == [REJECTED] * 2
    wait_until(lambda: shares.offsets()[0] == (2, 0))


@pytest.mark.parametrize(("level", "topic"), [(1, "dlq.t"), (2, "")])
def test_without_the_feature_or_a_topic_there_are_no_dead_letters(shares: Shares, level: int, topic: str) -> None:
    configure(shares, **{TOPIC: topic})
    features = shares.harness.broker.registered_features.published
    features.current = features.current._replace(
        features=tuple(
            each._replace(level=level) if each.name == "share.version" else each for each in features.current.features
        )
    )
    shares.harness.create_topic("dlq.t", **ENABLED)
    shares.produce(b"0")
    assert shares.acquired("a", 0) == [(0, 0, 1)]
    shares.acknowledge("a", 1, (0, 0, [REJECT]))
    assert shares.offsets()[0] == (1, 0)
    assert letters(shares) == []


def test_dead_letters_stay_within_the_size_limit_of_batches(shares: Shares) -> None:
    configure(shares, **{COPY: "true"})
    shares.harness.create_topic("dlq.t", max_message_bytes="2000", **ENABLED)
    values = [bytes([number]) * 500 for number in range(20)]
    shares.produce(*values)
    assert shares.acquired("a", 0) == [(0, 19, 1)]
    shares.acknowledge("a", 1, (0, 19, [REJECT]))
    assert [each.value for each in wait_for_letters(shares, 20)] == values


def test_an_internal_topic_is_no_dead_letter_topic(shares: Shares) -> None:
    with pytest.raises(KafkaError) as raised:
        shares.harness.broker.group_configs.check({TOPIC: "__internal"})
    assert raised.value.error_code == ErrorCode.INVALID_CONFIG
