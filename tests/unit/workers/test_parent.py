"""Tests of the parent of workers during reloads. A record of the plans replaces the processes."""

import contextlib
import itertools
import logging
import socket

import pytest

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.workers import child
from klamm.workers.parent import Parent

pytestmark = pytest.mark.interpreted
KILLED = -9
TEXT = """[server]
workers = 3
[listeners.front]
bind = "127.0.0.1:0"
api_set = "echo"
"""


class Processes:
    """The plan of each worker's process, and the messages to the workers."""

    def __init__(self):
        self.plans = {}
        self.workers = {}
        self.sent = []
        self._pids = itertools.count(100)

    def fork(self, number, run, keep):
        self.workers[number] = run.__self__
        self.plans[number] = run.__self__.plan
        return next(self._pids)

    def send(self, number, kind):
        self.sent.append((number, kind))

    def taken(self):
        sent, self.sent = self.sent, []
        return sent


class Reloaded:
    """A parent with three serving workers."""

    def __init__(self, folder):
        self.file = folder / "klamm.toml"
        self.file.write_text(TEXT)
        self.parent = Parent(self._plan(), None, self._plan)
        self.processes = self.parent._processes = Processes()

    def _plan(self):
        return load_plan(self.file, PluginRegistry())

    def start(self):
        self.parent._supervisor.start()
        for number in (1, 2, 3):
            self.ready(number)

    def ready(self, number):
        details = {"data": "", "described": "", "addresses": {"front": ""}, "extensions": {}}
        self.parent.received(number, {"type": "ready", **details})

    def reload(self, text, left=()):
        """Reload a file. Each worker reports the tables that only a new process reads."""
        self.file.write_text(text)
        self.parent.reload()
        for number in (1, 2, 3):
            assert self.processes.taken() == [(number, "reload")]
            self.answer(number, left)

    def answer(self, number, left=()):
        self.parent.received(number, {"type": "reloaded", "lines": [], "left": list(left)})

    def replaced(self, number):
        """Check that a worker is stopped, and let its successor serve."""
        assert self.processes.taken() == [(number, "stop")]
        self.parent.exited(number, 0)
        self.ready(number)

    def listeners(self):
        """Return the names of the listeners of each worker's process."""
        return {number: [one.name for one in plan.listeners] for number, plan in sorted(self.processes.plans.items())}


@pytest.fixture
def reloaded(tmp_path):
    """Yield a parent with three serving workers."""
    with contextlib.ExitStack() as opened:
        one = Reloaded(tmp_path)
        one.parent.open(opened)
        one.start()
        yield one


@pytest.fixture
def more():
    """Return a file with a further listener on a free port."""
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        port = there.getsockname()[1]
    return f'[listeners.more]\nbind = "127.0.0.1:{port}"\napi_set = "echo"\n'


def io_threads(reloaded, number):
    return reloaded.processes.plans[number].server.io_threads


def test_successors_have_the_settings_that_the_workers_applied(reloaded):
    reloaded.reload(TEXT.replace("workers", "io_threads = 3\nworkers"))
    reloaded.parent.exited(2, KILLED)
    assert io_threads(reloaded, 2) == 3
    reloaded.ready(2)
    assert reloaded.processes.taken() == []


def test_the_successor_of_a_worker_that_ends_during_a_reload_has_the_new_settings(reloaded):
    reloaded.file.write_text(TEXT.replace("workers", "io_threads = 3\nworkers"))
    reloaded.parent.reload()
    reloaded.parent.exited(1, KILLED)
    assert io_threads(reloaded, 1) == 3
    assert reloaded.processes.taken() == [(1, "reload"), (2, "reload")]


def test_a_worker_that_was_starting_during_a_reload_reloads_when_it_serves(reloaded):
    reloaded.parent.exited(2, KILLED)
    reloaded.file.write_text(TEXT.replace("workers", "io_threads = 3\nworkers"))
    reloaded.parent.reload()
    for number in (1, 3):
        assert reloaded.processes.taken() == [(number, "reload")]
        reloaded.answer(number)
    reloaded.ready(2)
    assert reloaded.processes.taken() == [(2, "reload")]


def test_successors_of_a_file_that_needs_a_new_parent_apply_what_they_can(reloaded):
    reloaded.reload(
        TEXT.replace("workers", "io_threads = 3\nworkers") + "backlog = 7\n", [("[listeners.front] backlog", "why")]
    )
    assert reloaded.processes.taken() == []
    reloaded.parent.exited(2, KILLED)
    assert io_threads(reloaded, 2) != 3
    reloaded.ready(2)
    assert reloaded.processes.taken() == [(2, "reload")]


def test_a_replacement_that_fails_is_taken_back_and_can_be_repeated(reloaded, more, capsys):
    reloaded.reload(TEXT + more, [("[listeners.more]", "why")])
    reloaded.replaced(1)
    assert reloaded.processes.taken() == [(2, "stop")]
    reloaded.parent.exited(2, 0)
    assert reloaded.listeners() == {1: ["front", "more"], 2: ["front", "more"], 3: ["front"]}
    reloaded.parent.exited(2, KILLED)
    assert "worker 2 does not start with the new configuration" in capsys.readouterr().out
    assert reloaded.processes.taken() == [(1, "stop")]
    # Its sockets stay open until no worker has them.
    assert list(reloaded.parent.addresses) == ["front", "more"]
    reloaded.parent.exited(1, 0)
    assert reloaded.listeners() == {1: ["front"], 2: ["front"], 3: ["front"]}
    reloaded.ready(1)
    reloaded.ready(2)
    # They apply the settings that the third worker has applied.
    assert reloaded.processes.taken() == [(1, "reload"), (2, "reload")]
    assert list(reloaded.parent.addresses) == ["front"]
    assert "reload: done" in capsys.readouterr().out
    reloaded.reload(TEXT + more, [("[listeners.more]", "why")])
    for number in (1, 2, 3):
        reloaded.replaced(number)
    assert reloaded.listeners() == dict.fromkeys((1, 2, 3), ["front", "more"])
    assert list(reloaded.parent.addresses) == ["front", "more"]
    assert "reload: done" in capsys.readouterr().out


def test_a_return_to_the_earlier_configuration_goes_on_if_a_worker_fails(reloaded, more, capsys):
    reloaded.reload(TEXT + more, [("[listeners.more]", "why")])
    reloaded.replaced(1)
    reloaded.replaced(2)
    assert reloaded.processes.taken() == [(3, "stop")]
    reloaded.parent.exited(3, 0)
    reloaded.parent.exited(3, KILLED)
    assert reloaded.processes.taken() == [(1, "stop")]
    reloaded.parent.exited(1, 0)
    reloaded.parent.exited(1, KILLED)
    assert reloaded.processes.taken() == [(2, "stop")]
    reloaded.parent.exited(2, 0)
    assert reloaded.listeners() == dict.fromkeys((1, 2, 3), ["front"])
    assert list(reloaded.parent.addresses) == ["front", "more"]
    reloaded.ready(2)
    assert list(reloaded.parent.addresses) == ["front"]
    assert capsys.readouterr().out.count("does not start") == 1


def with_level(level, more=""):
    return TEXT.replace("workers", f'log_levels = {{ "klamm.tests.c" = "{level}" }}\nworkers') + more


@pytest.fixture
def logger():
    """Return a logger that the configuration names, and later does not."""
    one = logging.getLogger("klamm.tests.c")
    yield one
    one.setLevel(logging.NOTSET)


def test_a_level_of_a_reload_that_waits_for_the_next_start_can_go(reloaded, logger):
    reloaded.reload(with_level("DEBUG", "backlog = 7\n"), [("[listeners.front] backlog", "why")])
    assert logger.level == logging.DEBUG
    reloaded.reload(TEXT + "backlog = 7\n", [("[listeners.front] backlog", "why")])
    assert logger.level == logging.NOTSET


def test_levels_return_with_the_earlier_configuration(reloaded, more, logger):
    reloaded.reload(with_level("DEBUG", more), [("[listeners.more]", "why")])
    reloaded.replaced(1)
    reloaded.parent.exited(2, 0)
    reloaded.parent.exited(2, KILLED)
    assert logger.level == logging.NOTSET


class Started(Exception):
    """Raised to end the start of a worker."""


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts a worker up to its server."""

    class Server:
        def __init__(self, *arguments, **options):
            raise Started

    def start_one(worker):
        with pytest.raises(Started):
            worker.run(None)

    monkeypatch.setattr(child, "SocketServer", Server)
    monkeypatch.setattr(child, "log_as_worker", lambda log_format, number: None)
    monkeypatch.setattr(child.signal, "signal", lambda number, handler: None)
    return start_one


def test_a_worker_has_the_levels_of_its_own_configuration(reloaded, logger, start):
    reloaded.reload(with_level("DEBUG", "backlog = 7\n"), [("[listeners.front] backlog", "why")])
    reloaded.parent.exited(2, KILLED)
    start(reloaded.processes.workers[2])
    assert logger.level == logging.NOTSET
