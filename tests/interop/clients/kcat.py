"""The client kcat: librdkafka from the shell. It has no admin commands, so the server creates its topics on demand."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable

from tests.interop.clients.base import (
    GIVE_UP_S,
    HEARTBEAT_INTERVAL_MS,
    IN_FLIGHT_RECORDS,
    SESSION_TIMEOUT_MS,
    Client,
    feed,
)
from tests.interop.workload import PARTITIONS, Consumed, KeyValue

_FORMAT = r"%p\t%o\t%k\t%s\n"


class Kcat(Client):
    name = "kcat"
    commits_on_a_timer = True

    def create_topic(self, bootstrap: str, topic: str) -> None:
        """Request the topic, so that the server creates it with `num.partitions`.

        Raises TimeoutError after half a minute.
        """
        deadline = time.monotonic() + 30
        while f'topic "{topic}" with {PARTITIONS} partitions' not in self._metadata(bootstrap, topic):
            if time.monotonic() > deadline:
                raise TimeoutError(self._metadata(bootstrap, topic))
            time.sleep(0.1)

    def _metadata(self, bootstrap: str, topic: str) -> str:
        command = ["kcat", "-L", "-b", bootstrap, "-t", topic]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def produce_all(self, bootstrap: str, topic: str, records: Iterable[KeyValue], codec: str = "none") -> None:
        command = ["kcat", "-P", "-E", "-b", bootstrap, "-t", topic, "-K", "\t", "-z", codec]
        command += ["-X", "enable.idempotence=true", "-X", f"queue.buffering.max.messages={IN_FLIGHT_RECORDS}"]
        command += ["-X", f"message.timeout.ms={int(GIVE_UP_S * 1000)}"]
        feed(command, (f"{key}\t{value}\n" for key, value in records))

    def consume_all(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", _FORMAT]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIVE_UP_S)
        parsed = (self.parse_line(line) for line in done.stdout.splitlines())
        return [record for record in parsed if record is not None]

    def member_command(self, bootstrap: str, group: str, topic: str) -> list[str]:
        command = ["kcat", "-E", "-b", bootstrap, "-u", "-f", _FORMAT, "-X", "auto.offset.reset=earliest"]
        command += ["-X", "auto.commit.interval.ms=100", "-X", f"session.timeout.ms={SESSION_TIMEOUT_MS}"]
        return [*command, "-X", f"heartbeat.interval.ms={HEARTBEAT_INTERVAL_MS}", "-G", group, topic]
