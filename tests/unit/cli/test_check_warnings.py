"""Tests of warnings by `klamm check` about valid settings without effect."""

from pathlib import Path

PRIORITY = """
[server]
io_threads = 1
request_scheduler = "priority"
[server.priority]
control_handlers = 1
[listeners.local]
bind = "127.0.0.1:0"
api_set = "echo"
"""


def test_check_warns_of_handlers_that_priority_cannot_reserve(klamm):
    why = (
        "of io_threads = 1, 0 can be reserved for control requests, but control_handlers = 1:"
        " control requests wait while data requests occupy the others"
    )
    for text, place in ((PRIORITY, "6:1"), (PRIORITY.replace("control_handlers = 1\n", ""), "5:1")):
        Path("one.toml").write_text(text)
        assert klamm("check", "one.toml")[2] == [f"warning: one.toml:{place}  server.priority.control_handlers: {why}"]
    Path("two.toml").write_text(PRIORITY.replace("io_threads = 1", "io_threads = 2"))
    assert klamm("check", "--strict", "two.toml") == (0, ["two.toml: ok (local)"], [])
