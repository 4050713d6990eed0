"""Templates of parts that a server works with: throttle, assigner, scheduler, command."""

from __future__ import annotations

from typing import Final

from klamm.cli.templates.package import Template

THROTTLE: Final = Template(
    "klamm_throttles",
    "a fixed delay for one user",
    '''\
from dataclasses import dataclass

from klamm import RequestContext, Throttle, setting


@dataclass(frozen=True, slots=True)
class CLASSSettings:
    user: str = setting(doc="The user whose requests are delayed, e.g. `batch`.")
    delay_ms: int = setting(100, doc="Time for which a connection is muted after a large request.", minimum=0)
    from_bytes: int = setting(10_000, doc="The size from which on a request is large.", minimum=0)


class CLASS(Throttle):
    """SENTENCE.

    Several threads call it concurrently, and it must not block.
    """

    def charge(self, context: RequestContext, size_bytes: int, seconds: float) -> int:
        if context.principal.name != self.settings.user or size_bytes < self.settings.from_bytes:
            return 0
        return int(self.settings.delay_ms)
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, RawClient, check_throttle
from klamm.wire.messages.list_groups import ListGroupsRequest
from MODULE.part import CLASS, CLASSSettings


def test_the_user_is_delayed():
    settings = [
        'listeners.default.throttles=["PART"]',
        "listeners.default.PART.user=ANONYMOUS",
        "listeners.default.PART.from_bytes=0",
        "listeners.default.PART.delay_ms=5",
    ]
    with EmbeddedServer(settings, plugins=[MODULE]) as server, RawClient(server.address()) as client:
        assert client.call(ListGroupsRequest(), 4).throttle_time_ms == 5


def test_it_keeps_its_contract():
    check_throttle(CLASS, CLASSSettings(user="alice"))
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
throttles = ["PART"]

[listeners.default.PART]
user = "batch"
delay_ms = 500
```
""",
)

ASSIGNER: Final = Template(
    "klamm_processor_assigners",
    "the same processor for all connections of an address",
    '''\
import zlib
from collections.abc import Sequence

from klamm import Address
from klamm.dispatch import ProcessorAssigner, ProcessorLoad


class CLASS(ProcessorAssigner):
    """SENTENCE.

    Called on the acceptor's thread.
    """

    def assign(self, address: Address, loads: Sequence[ProcessorLoad]) -> int:
        return zlib.crc32(address.host.encode()) % len(loads)
''',
    """\
import MODULE

from klamm import Address
from klamm.dispatch import ProcessorLoad
from klamm.testing import EmbeddedServer, check_assigner
from MODULE.part import CLASS


def test_an_address_keeps_its_processor():
    loads = [ProcessorLoad(connections) for connections in (3, 0, 5)]
    assert len({CLASS().assign(Address("10.0.0.1", port), loads) for port in range(50)}) == 1


def test_a_broker_serves_with_it():
    settings = ["listeners.default.assigner=PART", "listeners.default.processors=2"]
    with EmbeddedServer(settings, plugins=[MODULE]) as server:
        assert server.create_topic("orders") == "orders"


def test_it_keeps_its_contract():
    check_assigner(CLASS)
""",
    """\
```toml
[listeners.default]
bind = "127.0.0.1:9092"
processors = 4
assigner = "PART"
```
""",
)

SCHEDULER: Final = Template(
    "klamm_request_schedulers",
    "the smallest request first",
    '''\
import heapq
import itertools
import threading
from typing import Any

from klamm import RequestContext
from klamm.dispatch import RequestScheduler


class CLASS(RequestScheduler):
    """SENTENCE.

    All processors and handlers use it concurrently.
    """

    def __init__(self, settings: Any, capacity: int) -> None:
        super().__init__(settings, capacity)
        # Protects the heap and the count of calls of `wake`.
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._heap: list[tuple[int, int, RequestContext]] = []
        self._wakes = 0

    def offer(self, request: RequestContext) -> bool:
        with self._changed:
            if len(self._heap) >= self.capacity:
                return False
            heapq.heappush(self._heap, (request.size_bytes, next(self._order), request))
            self._changed.notify()
            return True

    def take(self) -> RequestContext | None:
        with self._changed:
            self._changed.wait_for(lambda: self._wakes or self._heap)
            if self._wakes:
                self._wakes -= 1
                return None
            return heapq.heappop(self._heap)[2]

    def wake(self) -> None:
        with self._changed:
            self._wakes += 1
            self._changed.notify()

    def size(self) -> int:
        return len(self._heap)
''',
    """\
import MODULE

from klamm.testing import EmbeddedServer, MemoryListener, check_scheduler
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from MODULE.part import CLASS


def test_the_smallest_is_first():
    listener, queue = MemoryListener(), CLASS(None, 10)
    large = listener.request(MetadataRequest([MetadataRequestTopic(name="a" * 100)]), 9)
    small = listener.request(MetadataRequest([]), 9)
    assert [queue.offer(large), queue.offer(small)] == [True, True]
    assert [queue.take(), queue.take()] == [small, large]


def test_a_broker_serves_with_it():
    with EmbeddedServer(["server.request_scheduler=PART"], plugins=[MODULE]) as server:
        assert server.create_topic("orders") == "orders"


def test_it_keeps_its_contract():
    check_scheduler(CLASS)
""",
    """\
```toml
[server]
request_scheduler = "PART"

[listeners.default]
bind = "127.0.0.1:9092"
```
""",
)

COMMAND: Final = Template(
    "klamm_commands",
    "lists the topics of a server",
    '''\
import argparse
from collections.abc import Sequence

from klamm.testing import Admin, RawClient


def CLASS(arguments: Sequence[str]) -> int:
    """SENTENCE. Return the exit code."""
    parser = argparse.ArgumentParser(prog="klamm PART", description="SENTENCE.")
    parser.add_argument("address", metavar="HOST:PORT")
    host, _, port = parser.parse_args(list(arguments)).address.rpartition(":")
    admin = Admin(lambda: RawClient((host, int(port))))
    for name, partitions in sorted(admin.topics().items()):
        print(name, partitions)
    admin.close()
    return 0
''',
    """\
import pytest

from klamm.testing import EmbeddedServer
from MODULE.part import CLASS


def test_topics_are_listed(capsys):
    with EmbeddedServer() as server:
        server.create_topic("orders", partitions=3)
        assert CLASS([server.bootstrap]) == 0
    assert capsys.readouterr().out == "orders 3\\n"


def test_wrong_arguments_are_refused():
    with pytest.raises(SystemExit):
        CLASS([])
""",
    """\
```sh
klamm PART 127.0.0.1:9092
```
""",
)
