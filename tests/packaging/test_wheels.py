"""Tests of the sdist and the wheels as users get them: built, installed into empty environments, and started.

`build` makes klamm's wheel from its sdist, so a wheel that serves shows that both are complete.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import tomli
from confluent_kafka import Consumer, Producer

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
PRINT = ROOT / "examples" / "plugins" / "klamm-print"
PACKAGE_ROOTS = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]
TWO_DOORS = """\
[server]
data_dir = "data"

[listeners.broker]
bind = "127.0.0.1:0"
api_set = "broker"

[listeners.prints]
bind = "127.0.0.1:0"
api_set = "print"

[print]
file = "printed"
"""


class Distributions(NamedTuple):
    sdist: Path
    wheel: Path
    print_wheel: Path


def run(*command: str | Path) -> str:
    """Return the standard output of a command, which must succeed within its time."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=clean_environment())
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Return an environment in which a child process cannot find klamm in this checkout."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VENV", "VIRTUAL_ENV")}


def build_wheel(folder: Path, **environment: str) -> Path:
    """Build the sdist, and the wheel from it, in an isolated environment."""
    command = [sys.executable, "-m", "build", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(folder: Path, *wheels: Path | str) -> Path:
    """Make an environment with only these wheels and their dependencies. Return the folder of its programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    if importlib.util.find_spec("pip"):
        installer: list[str | Path] = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install"]
    else:
        uv = shutil.which("uv")
        assert uv is not None, "neither pip nor uv is there to install wheels with"
        installer = [uv, "pip", "install", "--quiet", "--python", python]
    run(*installer, *wheels)
    return folder / "bin"


@contextmanager
def serving(serve: Sequence[str | Path], folder: Path, *arguments: str) -> Iterator[Mapping[str, str]]:
    """Yield the addresses of `serve` in `folder`. At the end it must exit with code 0."""
    ready = folder / "ready.json"
    process = subprocess.Popen(
        [*serve, *arguments, "--ready-file", ready],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        pause = threading.Event()
        while not ready.exists():
            assert process.poll() is None, process.communicate()[0]
            pause.wait(0.02)
        yield json.loads(ready.read_text())["listeners"]
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 0, output
    finally:
        process.kill()
        process.wait(60)


def produce(address: str, topic: str, values: list[str]) -> None:
    """Send records and wait until all are acknowledged."""
    failures = []
    producer = Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def consume(address: str, topic: str, count: int) -> list[str]:
    """Return the first records of a topic."""
    settings = {"bootstrap.servers": address, "group.id": "packaging", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, timeout=30)
        assert [message.error() for message in messages] == [None] * count
        return [message.value().decode() for message in messages]
    finally:
        consumer.close()


def test_the_wheel_has_every_module_and_nothing_else(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    roots = [ROOT / root for root in PACKAGE_ROOTS]
    written = {
        str(file.relative_to(root))
        for root in roots
        for pattern in ("klamm*", "pyspark_klamm*")
        for package in root.glob(pattern)
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == written
    assert "klamm/py.typed" in packed


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone knows what belongs to the project")
def test_the_sdist_has_every_file_of_the_project(distributions: Distributions) -> None:
    tracked = run("git", "-C", ROOT, "ls-files", "-z").split("\0")
    with tarfile.open(distributions.sdist) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert {name for name in tracked if name and (ROOT / name).exists()} - packed == set()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone can be cloned")
def test_a_clone_serves_with_one_command(tmp_path: Path) -> None:
    clone = tmp_path / "klamm"
    run("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", clone)
    with serving([clone / "scripts" / "serve"], tmp_path, "--bind", "127.0.0.1:0") as listeners:
        produce(listeners["default"], "greetings", ["hello", "world"])
        assert consume(listeners["default"], "greetings", 2) == ["hello", "world"]
    assert run("git", "-C", clone, "status", "--porcelain") == "", "all that it made is ignored"


def test_klamm_alone_serves_from_an_empty_environment(distributions: Distributions, tmp_path: Path) -> None:
    programs = install(tmp_path / "venv", distributions.wheel)
    version = distributions.wheel.name.split("-")[1]
    assert run(programs / "klamm", "--version") == f"klamm {version}\n"
    providers = json.loads(run(programs / "klamm", "plugins", "--json"))
    assert {provider["distribution"] for provider in providers} == {"klamm"}
    with serving([programs / "klamm", "serve"], tmp_path, "--bind", "127.0.0.1:0") as listeners:
        produce(listeners["default"], "greetings", ["hello", "world"])
        assert consume(listeners["default"], "greetings", 2) == ["hello", "world"]


def test_a_third_party_handler_set_runs_beside_the_broker(distributions: Distributions, tmp_path: Path) -> None:
    programs = install(tmp_path / "venv", distributions.wheel, distributions.print_wheel)
    (tmp_path / "klamm.toml").write_text(TWO_DOORS)
    (provider,) = [
        one for one in json.loads(run(programs / "klamm", "plugins", "--json")) if one["distribution"] != "klamm"
    ]
    assert (provider["kind"], provider["name"], provider["distribution"]) == ("api set", "print", "klamm-print")
    with serving([programs / "klamm", "serve"], tmp_path, "klamm.toml") as listeners:
        produce(listeners["prints"], "greetings", ["to the printer"])
        produce(listeners["broker"], "greetings", ["to the broker"])
        assert consume(listeners["broker"], "greetings", 1) == ["to the broker"]
    (line,) = (tmp_path / "printed").read_text().splitlines()
    assert json.loads(line) == {"topic": "greetings", "partition": 0, "key": None, "value": "to the printer"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_audits_quick_start_leads_to_a_report_within_five_minutes(
    distributions: Distributions, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "audit" / "README.md").read_text(encoding="utf-8")
    (configuration,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^(klamm audit .*)$", page, re.MULTILINE)
    assert [command.split()[2] for command in commands] == ["tail", "report", "detect"]
    began = time.monotonic()
    programs = install(tmp_path / "venv", f"{distributions.wheel}[report]")
    file = tmp_path / "klamm.toml"
    file.write_text(configuration.replace("127.0.0.1:9092", "127.0.0.1:0"))
    with serving([programs / "klamm", "serve"], tmp_path, "klamm.toml") as listeners:
        produce(listeners["public"], "greetings", ["hello", "world"])
        assert "Produce" in run(programs / "klamm", "audit", "tail", file)
        said = run(programs / "klamm", "audit", "report", file, "--html", tmp_path / "report.html")
        assert "greetings" in said
        run(programs / "klamm", "audit", "detect", file, "--findings", tmp_path / "findings.jsonl")
    assert "greetings" in (tmp_path / "report.html").read_text()
    assert time.monotonic() - began < 300
