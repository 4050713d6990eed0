"""No request of any API writes much into the log, even with many or long names."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from klamm import KafkaPrincipal
from klamm.logs.escaping import EscapingFormatter
from klamm.testing import EmbeddedServer
from tests.faults.cost_meter import CostMeter, frames_of

MAX_BYTES = 4_000
LIMITS = {"max_bytes": 300_000, "max_elements": 30, "every_version": False, "values": ("different", "long")}
OPEN = ("listeners.default.gates=[]",)
GUARDED = (*OPEN, "listeners.default.authorizer=static", 'listeners.default.static.rules=["deny User:* ALL topic:*"]')


class Counting(logging.Handler):
    """A log handler that counts the bytes that `klamm serve` would write."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(EscapingFormatter())
        self.size_bytes = 0
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self.first = self.first or line[:300]
        self.size_bytes += len(line.encode())

    def taken(self) -> tuple[int, str]:
        """Return the number of bytes since the last call, and the first line."""
        taken = self.size_bytes, self.first
        self.size_bytes, self.first = 0, ""
        return taken


@pytest.fixture
def counting() -> Iterator[Counting]:
    handler, logger = Counting(), logging.getLogger("klamm")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("settings", [OPEN, GUARDED], ids=["open", "guarded"])
def test_no_request_writes_much_into_the_log(settings: tuple[str, ...], counting: Counting) -> None:
    with EmbeddedServer(list(settings)) as server:
        meter = CostMeter(server, topics=4)
        counting.taken()
        too_much, apis, lines = {}, set(), 0
        for number, each in enumerate(frames_of(meter.served, **LIMITS)):
            # Each frame starts with new counts for the limits of each principal.
            meter.connection.principal = KafkaPrincipal(f"{number}-" + "x" * 5_000)
            meter.run(each.frame)
            size_bytes, first = counting.taken()
            apis.add(each.api)
            lines += size_bytes > 0
            if size_bytes > MAX_BYTES:
                too_much[each.api, each.version, each.kind] = size_bytes, first
        assert too_much == {}
        assert len(apis) == len(meter.served), "every API that the listener serves"
        assert lines > 20 or settings is OPEN, "requests that write nothing prove nothing"
