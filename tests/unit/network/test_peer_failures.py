"""The number of log lines that clients can cause is limited for each address, and suppressed lines are counted."""

import logging

from klamm.network.peer_failures import PeerFailureLog
from klamm.runtime import Scheduler
from klamm.testing import ManualClock

LINES = logging.getLogger("klamm.network")


def made(lines_per_minute=3):
    clock = ManualClock()
    scheduler = Scheduler(clock)
    return PeerFailureLog(LINES, scheduler.schedule, lines_per_minute), clock, scheduler


def test_an_address_gets_some_lines_and_then_a_count(caplog):
    log, clock, scheduler = made()
    for number in range(10):
        log.log("10.0.0.1", logging.WARNING, "failed: %d", number)
    log.log("10.0.0.2", logging.WARNING, "failed: %s", "another")
    assert [record.getMessage() for record in caplog.records] == [
        "failed: 0",
        "failed: 1",
        "failed: 2",
        "failed: another",
    ]
    assert log.suppressed == 7
    caplog.clear()
    clock.advance_ms(60_000)
    scheduler.run_due()
    assert [record.getMessage() for record in caplog.records] == ["7 more in 60 s like the first, which was: failed: 0"]
    log.log("10.0.0.1", logging.WARNING, "failed: %s", "again")
    assert caplog.records[-1].getMessage() == "failed: again"


def test_the_addresses_of_one_ipv6_network_share_their_lines(caplog):
    log, _, _ = made(lines_per_minute=1)
    for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
        log.log(host, logging.WARNING, "failed: %s", host)
    assert [record.args[0] for record in caplog.records] == ["2001:db8::1", "2001:db8:0:1::1"]


def test_from_the_thousandth_address_on_all_share_their_lines(caplog):
    log, _, _ = made(lines_per_minute=1)
    for number in range(5000):
        log.log(f"10.0.{number >> 8}.{number & 255}", logging.WARNING, "failed")
    assert len(caplog.records) == 1001
    assert log.suppressed == 3999
