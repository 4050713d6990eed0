"""Records that confluent-kafka produces become rows."""

import sqlite3

from confluent_kafka import Producer

import klamm_sqlite
from klamm.testing import EmbeddedServer


def test_records_become_rows(tmp_path):
    file = tmp_path / "records.db"
    settings = ["listeners.default.api_set=sqlite", f"sqlite.file={file}"]
    errors = []
    with EmbeddedServer(settings, plugins=[klamm_sqlite]) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "gzip"})
        for number in range(3):
            producer.produce("orders", key=str(number), value=b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
    assert errors == [None] * 3
    rows = sqlite3.connect(file).execute("SELECT topic, key, value FROM records ORDER BY id").fetchall()
    assert rows == [("orders", str(number).encode(), b"x") for number in range(3)]
