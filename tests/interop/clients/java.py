"""Apache Kafka's own Java client, through Kafka's command-line tools."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable

from tests.interop.clients.base import GIVE_UP_S, SESSION_TIMEOUT_MS, Client, feed
from tests.interop.java_programs import QUICK, run_in_the_machine
from tests.interop.workload import PARTITIONS, Consumed, KeyValue
from tests.peers.kafka_jars import classpath

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
STREAMS_GROUP_COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"
_PRODUCER_MEMORY_BYTES = 1 << 20


def java_command(main_class: str, *arguments: str, classes: str | None = None) -> list[str]:
    """Return the command line of a Java class. `classes` are further entries of the class path."""
    path = classpath() if classes is None else f"{classes}:{classpath()}"
    return ["java", *QUICK, "-cp", path, main_class, *arguments]


def run_tool(main_class: str, *arguments: str, timeout_s: float = 240.0) -> str:
    """Run a tool and return its standard output. Raises RuntimeError with all its output if the tool fails.

    A producer or consumer gets its own JVM, because the threads that it starts live on after its end.
    """
    if main_class.endswith(("Command", "Shell", "Tool")):
        done = run_in_the_machine(main_class, *arguments, timeout_s=timeout_s)
    else:
        command = java_command(main_class, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{main_class} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Java(Client):
    """The tools ConsoleProducer and ConsoleConsumer, and VerifiableConsumer as a member of groups."""

    name = "java"

    def create_topic(self, bootstrap: str, topic: str) -> None:
        arguments = ["--topic", topic, "--partitions", str(PARTITIONS), "--replication-factor", "1"]
        run_tool(TOPIC_COMMAND, "--bootstrap-server", bootstrap, "--create", *arguments)

    def produce_all(self, bootstrap: str, topic: str, records: Iterable[KeyValue], codec: str = "none") -> None:
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec]
        arguments += ["--reader-property", "parse.key=true", "--timeout", "5", "--batch-size", str(64 * 1024)]
        arguments += ["--max-memory-bytes", str(_PRODUCER_MEMORY_BYTES), "--max-block-ms", str(int(GIVE_UP_S * 1000))]
        arguments += ["--message-send-max-retries", str(2**31 - 1), "--request-timeout-ms", "30000"]
        command = java_command("org.apache.kafka.tools.ConsoleProducer", *arguments)
        feed(command, (f"{key}\t{value}\n" for key, value in records))

    def consume_all(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"]
        arguments += ["--max-messages", str(count), "--timeout-ms", "30000"]
        for shown in ("partition", "offset", "key"):
            arguments += ["--formatter-property", f"print.{shown}=true"]
        output = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, timeout_s=GIVE_UP_S)
        consumed = []
        for line in output.splitlines():
            partition, offset, key, value = line.split("\t")
            consumed.append(Consumed(int(partition.split(":")[1]), int(offset.split(":")[1]), key, value))
        return consumed

    def member_command(self, bootstrap: str, group: str, topic: str) -> list[str]:
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group]
        arguments += ["--session-timeout", str(SESSION_TIMEOUT_MS), "--verbose"]
        return java_command("org.apache.kafka.tools.VerifiableConsumer", *arguments)

    def parse_line(self, line: str) -> Consumed | None:
        event = json.loads(line)
        if event["name"] != "record_data":
            return None
        return Consumed(event["partition"], event["offset"], event["key"], event["value"])
