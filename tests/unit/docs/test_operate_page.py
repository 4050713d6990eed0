"""docs/operate.md shows the real output of commands: columns of connections, and stages of `klamm explain`."""

import re
from pathlib import Path

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.metadata import MetadataRequest
from klamm_metrics import connections

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "operate.md").read_text(encoding="utf-8")


def sample(command):
    """Return the lines below the first command with this beginning."""
    found = re.search(rf"^```console\n\$ {command}.*\n((?:(?!```).+\n)+)```", PAGE, re.MULTILINE)
    return found[1].splitlines()


def test_the_sample_of_connections_has_the_columns_of_the_command(capsys):
    with (
        EmbeddedServer(["server.extensions=prometheus", "prometheus.bind=127.0.0.1:0"]) as server,
        RawClient(server.address(), client_id="etl") as client,
    ):
        client.call(MetadataRequest(topics=None), 12)
        host, port = server.server.extensions[0].address
        assert connections.main([f"{host}:{port}", "--interval", "0.01"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    shown, *shown_rows = sample("klamm connections")
    assert shown.split() == header.split()
    # Columns are two spaces apart. A row has a value for each column that is not empty.
    columns = len(re.split(r" {2,}", header.strip()))
    for row in (*rows, *shown_rows):
        assert re.match(r"[\d.]+:\d+-[\d.]+:\d+-\d+-\d+ ", row)
        assert columns - 3 <= len(re.split(r" {2,}", row.strip())) <= columns


def test_the_stages_of_the_samples_are_those_of_the_table():
    table = PAGE.partition("| stage | named when |")[2].partition("\n\n")[0]
    known = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    shown = [line for line in sample("klamm explain") if not line.startswith("  ")]
    assert shown
    assert [line for line in shown if line.partition(":")[0] not in known] == []
