"""A process that copies numbers between topics, exactly once: `python -m tests.faults.kills.copier BOOTSTRAP SOURCE
OUTPUT`.

The process ends when its producer gets a fatal error; its parent process restarts it.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer

TIMEOUT_S = 20


def copy(bootstrap: str, source: str, output: str) -> None:
    patience = {"socket.timeout.ms": 5000, "reconnect.backoff.max.ms": 100, "log_level": 0}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": output,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 0,
            **patience,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": output,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **patience,
        }
    )
    consumer.subscribe([source])
    while True:
        messages = [message for message in consumer.consume(20, 0.5) if not message.error()]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(output, message.value())
        try:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(TIMEOUT_S)
            return


if __name__ == "__main__":
    copy(*sys.argv[1:])
