"""Every client creates a topic, produces records with every codec, and reads them back in order."""

from __future__ import annotations

import pytest

from tests.interop.clients import CLIENTS, Client
from tests.interop.inspection import stored_codecs
from tests.interop.workload import CODECS, check_read_back, records
from tests.peers.server import Server

pytestmark = pytest.mark.interop
COUNT = 20_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_records_in_each_codec_are_read_back(server: Server, topic: str, client: Client, codec: str) -> None:
    client.create_topic(server.bootstrap, topic)
    client.produce_all(server.bootstrap, topic, records(COUNT), codec)
    stored = stored_codecs(server, topic)
    assert codec in stored, stored
    assert stored <= {codec, "none"}, "clients leave a batch alone that a codec does not shrink, and no more"
    check_read_back(client.consume_all(server.bootstrap, topic, COUNT), COUNT)
