"""Tests of log lines that clients can cause: the first in full, then a count; and slow requests with their stages."""

import logging

import pytest

from klamm import KafkaPrincipal, RequestContext, StageTimes
from klamm.config.problems import ConfigError
from klamm.config.server_settings import check_slow_log
from klamm.logs.rate_limited import RateLimitedLog
from klamm.requests.slow_requests import LINES_A_MINUTE, SlowLog
from klamm.wire.api_keys import ApiKey
from tests.unit.network.fakes import connection_context

MS = 1_000_000
log = logging.getLogger("klamm.test")


class Later:
    """A scheduler whose calls run when the test calls `run`."""

    def __init__(self):
        self.calls = []

    def __call__(self, delay_ms, callback):
        self.calls.append((delay_ms, callback))

    def run(self):
        calls, self.calls = self.calls, []
        for _, callback in calls:
            callback()


def test_the_first_error_is_logged_with_its_traceback_and_the_others_as_a_count(caplog):
    later = Later()
    limited = RateLimitedLog(log, later)
    for number in range(5):
        limited.log("a", logging.ERROR, "failed %d", number, error=ValueError("on purpose"))
    limited.log("b", logging.ERROR, "something else")
    assert [record.getMessage() for record in caplog.records] == ["failed 0", "something else"]
    assert caplog.records[0].exc_info[1].args == ("on purpose",)
    later.run()
    assert [record.getMessage() for record in caplog.records[2:]] == [
        "4 more in 60 s like the first, which was: failed 0"
    ]


def test_after_the_interval_the_next_error_is_logged_again(caplog):
    later = Later()
    limited = RateLimitedLog(log, later)
    limited.log("a", logging.ERROR, "one")
    later.run()
    limited.log("a", logging.ERROR, "two")
    assert [record.getMessage() for record in caplog.records] == ["one", "two"]


def test_the_memory_for_keys_is_limited(caplog):
    later = Later()
    limited = RateLimitedLog(log, later)
    for number in range(3000):
        limited.log(number, logging.ERROR, "failed %d", number)
    assert len(caplog.records) <= 1001
    assert len(later.calls) <= 1001
    later.run()
    assert "more in 60 s" in caplog.records[-1].getMessage()


def slow_request():
    context = RequestContext(connection_context(), None, int(ApiKey.PRODUCE), 11, 7, "app", 100)
    context.connection.principal = KafkaPrincipal("alice")
    return context


def times(total_ms):
    return StageTimes(0, 1 * MS, 3 * MS, 303 * MS, 304 * MS, total_ms * MS)


def test_a_slow_request_is_logged_with_its_stages(caplog):
    SlowLog("public", {"Produce": 300}, Later()).note(slow_request(), times(310))
    line = caplog.records[0].getMessage()
    for part in (
        "listener=public",
        "connection_id=c-1",
        "principal=User:alice",
        "client_id=app",
        "api=Produce version=11",
        "correlation_id=7",
        "total_ms=310.0",
        "request_queue_ms=1.0",
        "local_ms=2.0",
        "remote_ms=300.0",
        "response_queue_ms=1.0",
        "send_ms=6.0",
    ):
        assert part in line


def test_a_request_below_its_threshold_is_not_logged(caplog):
    SlowLog("public", {"Produce": 300, "default": 1}, Later()).note(slow_request(), times(299))
    assert not caplog.records


def test_the_default_applies_to_apis_without_their_own_threshold(caplog):
    slow = SlowLog("public", {"Fetch": 1000, "default": 5}, Later())
    slow.note(slow_request(), times(6))
    assert len(caplog.records) == 1
    assert slow.watches(int(ApiKey.METADATA))


def test_without_a_default_only_named_apis_are_logged():
    slow = SlowLog("public", {"Fetch": 1000}, Later())
    assert [key for key in ApiKey if slow.watches(int(key))] == [ApiKey.FETCH]


def test_the_number_of_lines_is_limited(caplog):
    later = Later()
    slow = SlowLog("public", {"Produce": 1}, later)
    for _ in range(LINES_A_MINUTE + 5):
        slow.note(slow_request(), times(6))
    assert len(caplog.records) == LINES_A_MINUTE
    later.run()
    assert caplog.records[-1].getMessage().startswith("5 more in 60 s")


def test_thresholds_are_given_by_api():
    assert check_slow_log({"Produce": 1, "default": 0}) is None
    assert '"Prodce" is not an API' in check_slow_log({"Prodce": 1})
    assert "must not be negative" in check_slow_log({"Fetch": -1})


def test_an_invalid_threshold_is_reported_with_its_line(tmp_path):
    from klamm.config.planner import load_plan
    from klamm.config.plugin_registry import PluginRegistry

    file = tmp_path / "klamm.toml"
    file.write_text('[listeners.a]\nbind = "127.0.0.1:0"\n[listeners.a.slow_log]\nProdce = 10\n')
    with pytest.raises(ConfigError) as caught:
        load_plan(file, PluginRegistry())
    assert "klamm.toml:3" in str(caught.value.problems[0])
    assert "is not an API" in str(caught.value.problems[0])
