"""Running a consumer group's members, and a producer beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.clients.client import Client, Worker
from tests.interop.records import Consumed, Record, number_of, paced, records


class BackgroundProducer:
    """Produces numbered records at a steady rate in a thread; the `with` block ends when the last is acknowledged."""

    def __init__(self, client: Client, bootstrap: str, topic: str, count: int, per_second: int) -> None:
        source = paced(records(count), per_second)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(client, bootstrap, topic, source))

    def _run(self, client: Client, bootstrap: str, topic: str, source: Iterator[Record]) -> None:
        try:
            client.produce_all(bootstrap, topic, source, "lz4")
        except Exception as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive(), "the producer does not end"
        if self._error is not None and kind is None:
            raise self._error


@contextmanager
def group_of(count: int, client: Client, bootstrap: str, topic: str, folder: Path) -> Iterator[list[Worker]]:
    """Members of the group `topic`-group; whoever still runs is killed at the end."""
    workers = [Worker(client, bootstrap, topic, f"{topic}-group", folder / f"worker-{n}") for n in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill9()


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float) -> None:
    """Poll; AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.1)


def numbers_read(workers: Sequence[Worker]) -> Counter[int]:
    """How often each numbered record was read by any of them."""
    return Counter(number_of(record.value) for worker in workers for record in worker.consumed())


def repeated(consumed: Sequence[Consumed]) -> int:
    """Records that one member read more than once."""
    return len(consumed) - len({(record.partition, record.offset) for record in consumed})
