"""Administrative acts reach whoever subscribes, early or late."""

from klamm.shared.admin_events import AdminEvent, Announcements
from klamm.testing import ManualClock


def test_subscribers_hear_what_was_and_what_comes():
    clock = ManualClock()
    announcements = Announcements(clock)
    announcements.announce("config_reloaded")
    heard = []
    unsubscribe = announcements.subscribe(heard.append)
    clock.advance_ms(5)
    announcements.announce("certificate_swapped", "why", listener="a", failed=True)
    assert heard == [
        AdminEvent("config_reloaded", "", "", False, clock.wall_us() - 5000),
        AdminEvent("certificate_swapped", "why", "a", True, clock.wall_us()),
    ]
    unsubscribe()
    unsubscribe()
    announcements.announce("config_reloaded")
    assert len(heard) == 2


def test_a_subscriber_that_raises_costs_the_others_nothing(caplog):
    announcements = Announcements(ManualClock())
    heard = []
    announcements.subscribe(lambda announcement: 1 / 0)
    announcements.subscribe(heard.append)
    announcements.announce("server_started")
    assert [one.action for one in heard] == ["server_started"]
    assert "ZeroDivisionError" in caplog.text


def test_only_so_many_are_kept_for_later():
    announcements = Announcements(ManualClock())
    for number in range(1500):
        announcements.announce("plugin_loaded", str(number))
    heard = []
    announcements.subscribe(heard.append)
    assert [heard[0].detail, heard[-1].detail, len(heard)] == ["500", "1499", 1000]
