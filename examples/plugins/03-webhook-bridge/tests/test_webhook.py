"""Records that confluent-kafka produces arrive at a URL, also after one failure."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Producer

import klamm_webhook
from klamm.testing import EmbeddedServer


class Receiver(BaseHTTPRequestHandler):
    statuses = [503]
    posted = []

    def do_POST(self):
        records = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.statuses.pop() if self.statuses else 204
        if status == 204:
            self.posted.extend(records)
        self.send_response(status)
        self.end_headers()

    def log_message(self, *arguments):
        """Tests print nothing."""


@pytest.fixture
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_records_arrive_at_the_url_though_it_fails_at_first(url):
    settings = ["listeners.default.api_set=webhook", f"webhook.url={url}"]
    errors = []
    with EmbeddedServer(settings, plugins=[klamm_webhook]) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "retry.backoff.ms": 50})
        producer.produce("orders", key="7", value=b"new", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(10) == 0
    assert errors == [None]
    assert Receiver.posted == [{"topic": "orders", "key": "7", "value": "new"}]
    assert Receiver.statuses == []
