"""Tests of answers of a Schema Registry that are invalid or endless."""

import contextlib
import itertools
import json
import socket
import threading

import pytest

from klamm_console import schemas


class Registry:
    """A registry that answers each request with these bytes, and closes the connection."""

    def __init__(self, *parts):
        self._parts = parts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            client, _ = self._listener.accept()
            with client, contextlib.suppress(OSError):
                if not client.recv(65_536):
                    return
                for part in itertools.chain(*self._parts):
                    client.sendall(part)

    def close(self):
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()


OK = b"HTTP/1.1 200 OK\r\n"


# One read can return more headers than the HTTP client accepts. Then this limit ends the answer.
@pytest.mark.parametrize(
    ("parts", "error"),
    [
        (([OK, b"\r\n"], itertools.repeat(b" ")), TimeoutError),
        (([OK], itertools.repeat(b"X: y\r\n")), OSError),
        ((itertools.repeat(b"H"),), TimeoutError),
    ],
    ids=["body", "headers", "status"],
)
def test_an_answer_that_does_not_end_is_an_error(monkeypatch, parts, error):
    times = itertools.count(0, schemas._WITHIN_S / 2)
    monkeypatch.setattr(schemas, "monotonic", lambda: next(times))
    registry = Registry(*parts)
    try:
        with pytest.raises(error):
            schemas.Schemas(lambda: registry.url).ask(registry.url, "schemas/ids/1")
    finally:
        registry.close()


def test_an_answer_in_pieces_is_read_completely():
    body = json.dumps({"schema": "x" * 100_000}).encode()
    registry = Registry([OK, b"Content-Length: %d\r\n\r\n" % len(body), body])
    try:
        assert schemas.Schemas(lambda: registry.url).ask(registry.url, "schemas/ids/1") == json.loads(body)
    finally:
        registry.close()


@pytest.mark.parametrize("version", ["1e999", "NaN", "null", "[]", '"x"'])
def test_a_reference_without_a_version_is_reported(version):
    pytest.importorskip("google.protobuf")
    body = b'{"schemaType":"PROTOBUF","schema":"","references":[{"name":"a","subject":"b","version":%s}]}'
    registry = Registry([OK, b"\r\n", body % version.encode()])
    try:
        with pytest.raises(ValueError, match="invalid|int"):
            schemas.Schemas(lambda: registry.url).page().decoded(1, b"\0\0", 1000)
    finally:
        registry.close()
