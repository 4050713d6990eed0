"""The server goes away twice, once in order and once by `kill -9`, and clients carry on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.clients.client import Client
from tests.interop.groups import BackgroundProducer, group_of, numbers_read, wait_until
from tests.interop.records import check_log
from tests.interop.servers import PARTITIONS
from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
COUNT = 20_000
PER_SECOND = 2_000


def test_server_restarts_under_load(own_server: Server, client: Client, topic: str, tmp_path: Path) -> None:
    server = own_server
    client.create_topic(server.bootstrap, topic, PARTITIONS)
    with group_of(2, client, server.bootstrap, topic, tmp_path) as workers:
        with BackgroundProducer(client, server.bootstrap, topic, COUNT, PER_SECOND):
            wait_until("reading begins", lambda: len(numbers_read(workers)) > COUNT // 20, 30)
            server.restart()
            wait_until("reading goes on", lambda: len(numbers_read(workers)) > COUNT // 2, 60)
            server.kill9()
            server.start()
        wait_until("every record is read", lambda: len(numbers_read(workers)) == COUNT, 60)
        for worker in workers:
            worker.stop()
    check_log(client.consume_all(server.bootstrap, topic), COUNT, PARTITIONS, once=client.idempotent)
