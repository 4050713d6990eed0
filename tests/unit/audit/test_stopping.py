"""Tests of commands that run until a signal.

The signal arrives as a byte of a socket, because a handler must take no lock.
"""

import ast
import signal
import threading
from pathlib import Path

import pytest

import klamm_spark
from klamm_spark.stopping import until_a_signal

SOURCES = sorted(Path(klamm_spark.__file__).parent.rglob("*.py"))
LOCKING = {"set", "put", "notify", "notify_all", "acquire"}


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_all_later_ones(number):
    with until_a_signal() as stopped:
        assert not stopped(0)
        signal.raise_signal(number)
        assert stopped(3600)
        assert stopped(0)
        assert stopped(3600)


def test_another_thread_waits_without_signals():
    found = []

    def wait():
        with until_a_signal() as stopped:
            found.append(stopped(0))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert found == [False]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_handler_of_a_signal_takes_a_lock(path):
    """If `Event.set` in a handler interrupts the thread that holds the event's lock, it waits for ever."""
    tree = ast.parse(path.read_text("utf-8"))
    handlers = [call.args[1] for call in ast.walk(tree) if isinstance(call, ast.Call) and _sets_a_handler(call)]
    names = {handler.id for handler in handlers if isinstance(handler, ast.Name)}
    handlers += [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name in names]
    calls = [each for handler in handlers for each in ast.walk(handler) if isinstance(each, ast.Call)]
    assert not [
        ast.unparse(call) for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in LOCKING
    ]


def _sets_a_handler(call):
    return ast.unparse(call.func) == "signal.signal" and len(call.args) > 1
