"""Tests of real clients with TLS: with files and settings of `klamm certs`, and with records that fill all buffers."""

from __future__ import annotations

import ast
import asyncio
import importlib
import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from klamm.testing import EmbeddedServer
from klamm_ssl.certs import run
from tests.interop.clients.java import java_command
from tests.tls_files import TlsFiles

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the output of `klamm certs`, by its headings."""
    assert run([str(tmp_path / "certs"), "--client", "alice", "--port", "0"]) == 0
    text = capsys.readouterr().out
    return dict(re.findall(r"^--- (\w+).*?\n(.*?)(?=^--- |\Z)", text, re.MULTILINE | re.DOTALL))


@pytest.fixture
def server(printed: dict[str, str], tmp_path: Path) -> Iterator[EmbeddedServer]:
    file = tmp_path / "klamm.toml"
    file.write_text(printed["klamm"])
    with EmbeddedServer(file=file) as running:
        yield running


def at(server: EmbeddedServer, text: str) -> str:
    return text.replace("localhost:0", f"localhost:{server.address('tls')[1]}")


def test_kcat_works_with_the_printed_settings(server: EmbeddedServer, printed: dict[str, str]) -> None:
    command = shlex.split(at(server, printed["kcat"]).replace("\\\n", " "))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "1 brokers" in done.stdout, done.stderr


def test_java_works_with_the_printed_settings(server: EmbeddedServer, printed: dict[str, str], tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    # The default timeout of this tool is only 5 s.
    properties.write_text(at(server, printed["Java"]) + "\nrequest.timeout.ms=60000\n")
    arguments = ["--bootstrap-server", at(server, "localhost:0"), "--command-config", str(properties)]
    command = java_command("org.apache.kafka.tools.BrokerApiVersionsCommand", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "ApiVersions" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("client", ["confluent_kafka", "kafka", "aiokafka"])
def test_python_clients_work_with_the_printed_settings(
    server: EmbeddedServer, printed: dict[str, str], client: str
) -> None:
    module = ast.parse(at(server, printed["Python"]))
    # Each client has one call in the printed text. aiokafka also has a context before it.
    (call,) = (
        node.value for node in module.body if isinstance(node, ast.Expr) and ast.unparse(node).startswith(f"{client}.")
    )
    before = [node for node in module.body if isinstance(node, ast.Assign)] if client == "aiokafka" else []
    names = {client: importlib.import_module(client)}
    importlib.import_module("aiokafka.helpers")

    def producer() -> Any:
        exec(compile(ast.Module(before, []), "printed", "exec"), names)  # noqa: S102
        return eval(compile(ast.Expression(call), "printed", "eval"), names)  # noqa: S307

    async def with_aiokafka() -> None:
        made = producer()
        await made.start()
        await made.send_and_wait("printed", b"value")
        await made.stop()

    if client == "aiokafka":
        asyncio.run(with_aiokafka())
    elif client == "kafka":
        made = producer()
        assert made.send("printed", b"value").get(30).topic == "printed"
        made.close()
    else:
        errors: list[object] = []
        made = producer()
        made.produce("printed", b"value", on_delivery=lambda error, _: errors.append(error))
        assert made.flush(30) == 0
        assert errors == [None]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_records_pass_unchanged_through_tls(tmp_path: Path, version: str) -> None:
    files = TlsFiles(tmp_path / "tls")
    settings = files.server_settings(client_auth="required", min_version=version, max_version=version)
    client = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.client.certificate),
        "ssl.key.location": str(files.client.key),
    }
    values = [random.Random(number).randbytes(200_000) for number in range(150)]
    with EmbeddedServer(settings) as server:
        client["bootstrap.servers"] = server.bootstrap
        producer = Producer({**client, "linger.ms": 50})
        for value in values:
            producer.produce("large", value, partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["large"])
        seen = []
        while len(seen) < len(values):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            seen.append(message.value())
        consumer.close()
    assert seen == values
