"""The recipes of docs/recipes.md work: the commands of each run in a new folder, with its TOML."""

import contextlib
import re
import socket
import subprocess
from pathlib import Path

import pytest

from klamm.cli.main import main
from klamm.testing import EmbeddedServer

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (I want .*?)$\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
RUN_ELSEWHERE = {
    "systemctl": "tests/contract/test_live_listeners.py reloads",
    "pip": "tests/unit/cli/test_new_plugin.py installs the package and runs its tests",
    "pytest": "the same",
}


def block(recipe, language):
    found = re.findall(rf"^```{language}\n(.*?)^```", RECIPES[recipe], re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


COMMANDS = [recipe for recipe in RECIPES if block(recipe, "sh")]


def with_free_ports(file):
    """Replace the ports that a file binds, because other processes may use them."""
    if file.exists():
        text = file.read_text(encoding="utf-8")
        with contextlib.ExitStack() as taken:

            def free(_):
                probe = taken.enter_context(socket.create_server(("127.0.0.1", 0)))
                return f'bind = "127.0.0.1:{probe.getsockname()[1]}"'

            file.write_text(re.sub(r'^bind = "127\.0\.0\.1:\d+"', free, text, flags=re.MULTILINE), encoding="utf-8")


def run(command, file, servers):
    if command == f"klamm serve {file.name}":
        servers.enter_context(EmbeddedServer(file=file))
        return
    if command.startswith("klamm "):
        try:
            code = main(command.split()[1:])
        except SystemExit as ended:
            code = ended.code
        # Problems that can only be found at the next start do not count here.
        assert not code, command
    elif not command.startswith(tuple(RUN_ELSEWHERE)):
        subprocess.run(["sh", "-c", command], check=True, cwd=file.parent)


@pytest.mark.parametrize("recipe", COMMANDS)
def test_the_commands_of_a_recipe_run(recipe, tmp_path, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "klamm.toml"
    if block(recipe, "toml"):
        file.write_text(block(recipe, "toml"), encoding="utf-8")
        with_free_ports(file)
    with contextlib.ExitStack() as servers:
        for command in block(recipe, "sh").splitlines():
            run(command, file, servers)
            if command.startswith("klamm init"):
                with_free_ports(file)


def test_each_recipe_has_something_to_run_and_a_link():
    assert 15 <= len(RECIPES) <= 25
    for recipe, text in RECIPES.items():
        assert re.search(r"^```(python|sh)$", text, re.MULTILINE), recipe
        assert re.search(r"\]\([\w/#.-]+\)", text), recipe
    assert len(RECIPES) == len(re.findall("^### ", PAGE, re.MULTILINE))
