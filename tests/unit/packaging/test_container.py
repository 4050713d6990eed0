"""The container's files fit klamm: its configuration, its command, its folders."""

import json
import re
from pathlib import Path

from klamm.cli.main import parser
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry

FOLDER = Path(__file__).resolve().parents[3] / "containers"
CONTAINERFILE = (FOLDER / "Containerfile").read_text(encoding="utf-8")


def test_the_configuration_can_be_served():
    plan = load_plan(FOLDER / "klamm.toml", PluginRegistry())
    assert [(one.name, one.bind[1]) for one in plan.listeners] == [("host", 9092), ("network", 29092)]


def test_the_command_exists():
    command = json.loads(re.search(r"^CMD (.*)$", CONTAINERFILE, re.MULTILINE)[1])
    options = parser().parse_args(command)
    assert f"COPY containers/klamm.toml {options.file}" in CONTAINERFILE
    assert f"VOLUME {options.data_dir}" in CONTAINERFILE
    assert f"test -e {options.ready_file}" in CONTAINERFILE
    assert f"{options.data_dir}" in (FOLDER / "compose.yaml").read_text(encoding="utf-8")


def test_the_container_does_not_run_as_root():
    last_stage = CONTAINERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]", last_stage, re.MULTILINE)
