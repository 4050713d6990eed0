"""Tests that administrative events reach all subscribers, also late ones."""

from klamm.shared.admin_events import AdminEvent, AdminEvents
from klamm.testing import ManualClock


def test_subscribers_get_past_and_new_events():
    clock = ManualClock()
    events = AdminEvents(clock)
    events.emit("config_reloaded")
    heard = []
    unsubscribe = events.subscribe(heard.append)
    clock.advance_ms(5)
    events.emit("certificate_swapped", "why", listener="a", failed=True)
    assert heard == [
        AdminEvent("config_reloaded", "", "", False, clock.wall_us() - 5000),
        AdminEvent("certificate_swapped", "why", "a", True, clock.wall_us()),
    ]
    unsubscribe()
    unsubscribe()
    events.emit("config_reloaded")
    assert len(heard) == 2


def test_a_subscriber_that_raises_does_not_affect_the_others(caplog):
    events = AdminEvents(ManualClock())
    heard = []
    events.subscribe(lambda event: 1 / 0)
    events.subscribe(heard.append)
    events.emit("server_started")
    assert [one.action for one in heard] == ["server_started"]
    assert "ZeroDivisionError" in caplog.text


def test_the_number_of_events_for_late_subscribers_is_limited():
    events = AdminEvents(ManualClock())
    for number in range(1500):
        events.emit("plugin_loaded", str(number))
    heard = []
    events.subscribe(heard.append)
    assert [heard[0].detail, heard[-1].detail, len(heard)] == ["500", "1499", 1000]
