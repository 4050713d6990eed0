"""examples/security starts after its files have been made with the commands in its comments."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from joserfc.jwk import ECKey

from klamm.cli.main import main
from klamm.testing import EmbeddedServer

EXAMPLES = Path(__file__).parents[3] / "examples" / "security"


@pytest.mark.parametrize("name", ["klamm.toml", "tokens.toml"])
def test_the_example_starts(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("sesame\n"))
    shutil.copy(EXAMPLES / name, tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    *before, serve = re.findall(r"^#   klamm (.*)$", text, re.MULTILINE)
    assert serve == f"serve {name}"
    for command in before:
        assert main(command.split()) == 0
    key = ECKey.generate_key("P-256", {"kid": "of the provider"})
    Path("jwks.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}), encoding="utf-8")
    assert main(["check", name]) == 0
    listeners = re.findall(r"^\[listeners\.(\w+)\]", text, re.MULTILINE)
    ports = [f"listeners.{listener}.bind=127.0.0.1:0" for listener in listeners]
    with EmbeddedServer(ports, file=name) as server:
        assert all(server.address(listener)[1] for listener in listeners)
