"""Tests of `parse_host_port`, and of each setting and argument that it parses."""

import pytest

from klamm.cli.main import main
from klamm.config import parse_host_port


@pytest.mark.parametrize("text", ["[::1]:9092", "localhost:9092"])
def test_an_address_to_connect_to_has_host_and_port(text):
    host = "::1" if text[0] == "[" else "localhost"
    assert parse_host_port(text, to_connect=True) == (host, 9092)


@pytest.mark.parametrize("text", [":9092", "a:0", "[]:1", "::1:9092", "[::1:9092", "a:65536", "a:" + "9" * 5000])
def test_an_address_that_no_client_can_connect_to_is_refused(text):
    with pytest.raises(ValueError, match="must be HOST:PORT with a port from 1 to 65535, not"):
        parse_host_port(text, to_connect=True)


GATEWAY = '[listeners.a]\nbind = "127.0.0.1:0"\napi_set = "gateway"\n[gateway]\nnode_ports = "9093"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GATEWAY + 'bootstrap = ["::1:9092"]', "6:1  gateway.bootstrap: must be HOST:PORT with a port from 1 to 65535"),
        (
            '[prometheus]\nbind = "::1:9404"\n[server]\nextensions = ["prometheus"]',
            "2:1  prometheus.bind: must be HOST:",
        ),
        (
            '[control]\nbind = "::1:0"\n[server]\nextensions = ["control"]',
            "2:1  control.bind: must be a loopback address",
        ),
        (
            '[listeners.a]\nbind = "::1:9092"',
            "2:1  listeners.a.bind: must be HOST:PORT with a port up to 65535, or unix:",
        ),
        ('[listeners.a]\nadvertise = "[::1:9092"', "2:1  listeners.a.advertise: must be HOST:PORT with a port up to"),
    ],
)
def test_a_setting_that_is_no_address_is_named_with_its_place(text, said, tmp_path, capsys):
    file = tmp_path / "klamm.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["check", str(file)]) == 2
    assert f"{file}:{said}" in capsys.readouterr().err


def test_replay_names_the_argument_that_is_no_address(tmp_path, capsys):
    assert main(["replay", str(tmp_path / "recording"), "--to", "::1:9092"]) == 2
    assert 'klamm replay: --to must be HOST:PORT with a port from 1 to 65535, not "::1:9092"' in capsys.readouterr().err
