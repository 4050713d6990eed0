"""A group member in its own process: `python -m tests.interop.clients.member CLIENT BOOTSTRAP GROUP TOPIC`.

It prints a line for every record that it reads, and then commits. So it has printed all records that it committed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from importlib import import_module

from tests.interop.workload import Consumed

_MODULES = {"confluent-kafka": "confluent", "kafka-python": "kafka_python", "aiokafka": "aio"}


class Running:
    """A flag that is True until SIGTERM."""

    def __init__(self) -> None:
        self._running = True
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self._running = False

    def __bool__(self) -> bool:
        return self._running

    def note(self, error: Exception) -> None:
        """Print the reason why a commit failed. The records will be read again, as a group promises."""
        print(f"commit: {error!r}", file=sys.stderr, flush=True)


def emit(consumed: Iterable[Consumed]) -> None:
    """Print records in the form of `Client.parse_line`, and flush."""
    for record in consumed:
        sys.stdout.write(f"{record.partition}\t{record.offset}\t{record.key}\t{record.value}\n")
    sys.stdout.flush()


def main() -> None:
    name, bootstrap, group, topic = sys.argv[1:]
    import_module(f"tests.interop.clients.{_MODULES[name]}").run_member(bootstrap, group, topic)


if __name__ == "__main__":
    main()
