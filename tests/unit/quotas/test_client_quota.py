"""Tests of the throttle `client_quota`: the cost of requests, shared quotas, and changes that apply at once."""

import pytest

from klamm import ErrorCode, KafkaError
from klamm_throttling.client_quota import ClientQuota
from klamm_throttling.throttling_settings import ClientQuotaSettings
from tests.unit.quotas.conftest import CREATE_TOPICS, FETCH, METADATA, PRODUCE, Throttled

ALICE = {"user": "alice"}


def test_without_quotas_nothing_is_throttled_or_kept(throttled):
    assert throttled.produce(10**9) == 0
    assert throttled.throttle.charge(throttled.request(), 10, 100.0) == 0
    assert throttled.request(FETCH).max_record_bytes is None
    assert throttled.request(FETCH).may_send_records(10**9)
    throttled.request(CREATE_TOPICS).charge_mutations(10**6, strict=True)
    assert throttled.metric("klamm:type=ClientQuota,name=TrackedSensors") == {(): 0}


def test_produce_is_charged_by_the_size_of_its_request(throttled):
    throttled.set_quotas(ALICE, producer_byte_rate=1000.0)
    assert throttled.produce(10_000) == 0
    # 1100 a second over ten seconds, where 1000 are allowed.
    assert throttled.produce(1000) == 1000
    assert throttled.throttle.charge(throttled.request(METADATA), 10**9, 0.0) == 0
    # The same bytes count over half a window more: 11,000 / 10.5 s.
    throttled.advance_ms(500)
    assert throttled.produce(0) == 500
    throttled.advance_ms(10_500)
    assert throttled.produce(0) == 0


def test_produce_may_be_throttled_for_longer_than_a_window(throttled):
    throttled.set_quotas(ALICE, producer_byte_rate=1000.0)
    assert throttled.produce(40_000) == 30_000


def test_a_user_has_one_quota_for_all_client_ids_and_a_default_is_for_each(throttled):
    throttled.set_quotas({"user": None}, producer_byte_rate=1000.0)
    assert throttled.produce(10_000, client_id="one") == 0
    assert throttled.produce(1000, client_id="two") == 1000
    assert throttled.produce(10_000, user="bob") == 0
    assert throttled.produce(10_000, user="carol", client_id=None) == 0


def test_client_ids_share_their_quota_among_users(throttled):
    throttled.set_quotas({"client-id": None}, producer_byte_rate=1000.0)
    assert throttled.produce(10_000, user="bob") == 0
    assert throttled.produce(1000, user="alice") == 1000
    assert throttled.produce(10**6, client_id="") == 0


def test_request_time_counts_in_percent_and_throttles_for_a_window_at_most(throttled):
    throttled.set_quotas(ALICE, request_percentage=10.0)
    charge = throttled.throttle.charge
    # A second of one thread is 100 %, and 10 % over ten seconds.
    assert charge(throttled.request(), 1, 1.0) == 0
    assert charge(throttled.request(), 1, 0.01) == 100
    assert charge(throttled.request(), 1, 5.0) == 1000


def test_a_produce_without_an_answer_is_exempt_from_request_time(throttled):
    throttled.set_quotas(ALICE, request_percentage=1.0, producer_byte_rate=1000.0)
    assert throttled.throttle.charge(throttled.request(PRODUCE), 11_000, 0.0) == 1000


def test_the_longest_throttle_time_is_sent(throttled):
    throttled.set_quotas(ALICE, request_percentage=1.0, producer_byte_rate=1000.0)
    assert throttled.throttle.charge(throttled.request(PRODUCE), 10_500, 60.0) == 1000
    assert throttled.throttle.charge(throttled.request(PRODUCE), 50_000, 60.0) > 1000
    assert throttled.metric("klamm:type=ClientQuota,name=ThrottledRequests") == {
        ("producer_byte_rate",): 1,
        ("consumer_byte_rate",): 0,
        ("request_percentage",): 1,
        ("controller_mutation_rate",): 0,
    }


def test_a_fetch_above_its_quota_gets_no_records_and_is_not_charged(throttled):
    throttled.set_quotas(ALICE, consumer_byte_rate=1000.0)
    fetch = throttled.request(FETCH)
    assert fetch.max_record_bytes == 10_000
    assert fetch.may_send_records(9_000)
    for _ in range(2):
        fetch = throttled.request(FETCH)
        assert not fetch.may_send_records(2_000)
        assert fetch.throttle_time_ms == 1000
    throttled.advance_ms(500)
    assert throttled.request(FETCH).may_send_records(1_500)


def test_records_larger_than_all_windows_pass_if_nothing_else_was_sent(throttled):
    throttled.set_quotas(ALICE, consumer_byte_rate=100.0)
    assert throttled.request(FETCH).may_send_records(10_000)
    assert not throttled.request(FETCH).may_send_records(1)
    throttled.advance_ms(11_000)
    assert throttled.request(FETCH).may_send_records(10_000)


def test_a_client_above_its_request_time_gets_no_records(throttled):
    throttled.set_quotas(ALICE, request_percentage=1.0)
    assert throttled.request(FETCH).may_send_records(1)
    throttled.throttle.charge(throttled.request(), 1, 1.0)
    fetch = throttled.request(FETCH)
    assert not fetch.may_send_records(1)
    assert fetch.throttle_time_ms == 1000
    assert fetch.may_send_records(0)


def test_strict_mutations_are_refused_once_the_bucket_is_empty(throttled):
    throttled.set_quotas(ALICE, controller_mutation_rate=2.0)
    request = throttled.request(CREATE_TOPICS)
    request.charge_mutations(24, strict=True)
    with pytest.raises(KafkaError) as raised:
        request.charge_mutations(1, strict=True)
    assert raised.value.error_code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # The bucket had 22 tokens and now owes two, at two a second.
    assert request.throttle_time_ms == 1000
    throttled.advance_ms(1000)
    throttled.request(CREATE_TOPICS).charge_mutations(1, strict=True)


def test_permissive_mutations_only_throttle(throttled):
    throttled.set_quotas(ALICE, controller_mutation_rate=2.0)
    request = throttled.request(CREATE_TOPICS)
    request.charge_mutations(24, strict=False)
    request.charge_mutations(2, strict=False)
    assert request.throttle_time_ms == 2000


def test_changed_quotas_apply_at_once_and_keep_the_counted_use(throttled):
    throttled.set_quotas(ALICE, producer_byte_rate=1000.0)
    assert throttled.produce(10_000) == 0
    throttled.set_quotas(ALICE, producer_byte_rate=500.0)
    assert throttled.produce(0) == 10_000
    throttled.set_quotas(ALICE)
    assert throttled.produce(10**9) == 0
    assert throttled.metric("klamm:type=ClientQuota,name=TrackedSensors") == {(): 0}


def test_a_client_with_a_more_specific_quota_leaves_the_common_one(throttled):
    throttled.set_quotas(ALICE, producer_byte_rate=1000.0)
    assert throttled.produce(12_000) == 2000
    throttled.set_quotas({"user": "alice", "client-id": "app"}, producer_byte_rate=10_000.0)
    assert throttled.produce(12_000) == 0
    assert throttled.produce(0, client_id="other") == 2000


def test_changed_settings_apply_while_the_server_runs():
    throttled = Throttled(users={"alice": {"producer_byte_rate": 1000}})
    assert throttled.produce(12_000) == 2000
    assert throttled.throttle.reconfigure(ClientQuotaSettings(users={"alice": {"producer_byte_rate": 1100}}))
    assert throttled.produce(0) == 909
    # Windows of another length start empty.
    assert throttled.throttle.reconfigure(
        ClientQuotaSettings(users={"alice": {"producer_byte_rate": 1000}}, quota_window_num=2)
    )
    assert throttled.produce(1000) == 0
    assert throttled.produce(1000) == 1000


def test_listeners_share_quotas_and_must_agree_on_settings(throttled):
    other = ClientQuota()
    other.open(throttled.new_listener("other"))
    throttled.set_quotas(ALICE, producer_byte_rate=1000.0)
    assert throttled.produce(10_000) == 0
    assert other.charge(throttled.request(PRODUCE), 1000, 0.0) == 1000
    differs = ClientQuota(ClientQuotaSettings(quota_window_num=5))
    with pytest.raises(ValueError, match="once, for all listeners"):
        differs.open(throttled.new_listener("third"))


def test_a_throttle_that_raises_limits_nothing_and_every_request_is_answered(throttled, caplog):
    class Broken(ClientQuota):
        def max_record_bytes(self, context):
            raise ZeroDivisionError

        charge_records = charge_mutations = lambda self, *_: 1 / 0

    throttled.set_quotas(ALICE, consumer_byte_rate=1000.0)
    throttled.listener.throttles = (Broken(), throttled.throttle)
    fetch = throttled.request(FETCH)
    assert fetch.max_record_bytes == 10_000
    assert fetch.may_send_records(1)
    fetch.charge_mutations(1, strict=True)
    assert len([record for record in caplog.records if "failed" in record.getMessage()]) == 3


def test_metrics_report_the_clients_nearest_to_their_quotas():
    throttled = Throttled(metrics_max_clients=2)
    throttled.set_quotas({"user": None}, producer_byte_rate=1000.0)
    for user, size in (("a", 2000), ("b", 12_000), ("c", 5000)):
        throttled.produce(size, user=user)
    assert throttled.metric("klamm:type=ClientQuota,name=Utilization") == {
        ("producer_byte_rate", "b", ""): 1.2,
        ("producer_byte_rate", "c", ""): 0.5,
    }
    assert throttled.metric("kafka.server:type=Produce,name=byte-rate") == {("b", ""): 1200, ("c", ""): 500}
    assert throttled.metric("klamm:type=ClientQuota,name=ThrottleTimeMs")["producer_byte_rate",] == 2000


def test_the_memory_for_client_ids_is_limited():
    throttled = Throttled(max_tracked_clients=10)
    throttled.set_quotas({"client-id": None}, producer_byte_rate=1000.0)
    for number in range(1000):
        throttled.produce(12_000, client_id=f"flood-{number}")
        throttled.advance_ms(1)
    assert throttled.metric("klamm:type=ClientQuota,name=TrackedSensors")[()] <= 40
    # The newest sensors are still known.
    assert throttled.produce(0, client_id="flood-999") > 0


def test_sensors_are_removed_an_hour_after_their_last_use(throttled):
    throttled.set_quotas({"client-id": None}, producer_byte_rate=1000.0)
    throttled.produce(1, client_id="old")
    throttled.advance_ms(1_800_000)
    throttled.produce(1, client_id="new")
    throttled.advance_ms(1_900_000)
    assert throttled.metric("kafka.server:type=Produce,name=byte-rate") == {("", "new"): 0}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"users": {"a": {"producer_rate": 1}}}, "is not a quota"),
        ({"users": {"a": {"producer_byte_rate": 0}}}, "greater than 0"),
        ({"clients": {"": {}}}, "must not be empty"),
        ({"user_clients": {"a": {"b": {"request_percentage": -1}}}}, "greater than 0"),
        ({"user_clients": {"": {}}}, "must not be empty"),
    ],
)
def test_wrong_settings_are_reported(settings, complaint):
    from klamm.config import specs_of

    ((key, value),) = settings.items()
    assert complaint in (specs_of(ClientQuotaSettings)[key].check(value) or "")
