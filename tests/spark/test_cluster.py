"""Tests with a standalone cluster on loopback: a master and two workers of pip's PySpark, and `spark-submit`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.sessions import events_of

EVENTS = 2_000
HOST = "127.0.0.1"
DEADLINE_S = 240
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def environment() -> dict[str, str]:
    java = shutil.which("java")
    assert java is not None
    home = str(Path(java).resolve().parents[1])
    roots = [entry for entry in sys.path if entry.startswith(str(ROOT)) and "site-packages" not in entry]
    own = {"JAVA_HOME": home, "SPARK_LOCAL_IP": HOST, "PYTHONPATH": os.pathsep.join(roots)}
    return os.environ | own


@contextmanager
def spark_class(
    log: Path, *arguments: str, port: int | None = None, memory: str = "256m"
) -> Iterator[subprocess.Popen[bytes]]:
    """Start pip's `spark-class` in its own process group. With a port, wait until the process listens there."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program), *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=bare() | {"SPARK_DAEMON_MEMORY": memory, "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"},
        )
    try:
        if port is not None:
            wait_for(port, process, log)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens at {port}: {log.read_text()}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a cluster with two workers of one core each."""
    port = free_port()
    url = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        package = "org.apache.spark.deploy"
        command = [f"{package}.master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"]
        stack.enter_context(spark_class(tmp_path / "master.log", *command, port=port))
        for number in (1, 2):
            options = ["--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            options += ["--work-dir", str(tmp_path / f"worker-{number}"), url]
            log = tmp_path / f"worker-{number}.log"
            stack.enter_context(spark_class(log, f"{package}.worker.Worker", *options))
        yield url


def klamm(*arguments: str, folder: Path, deadline_s: int = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "klamm", "audit", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=deadline_s, env=environment(), cwd=folder, check=False
    )


FILE = """\
[audit]
spool = "spool"

[audit.spark]
lake = "lake of all"
driver_memory = "1g"

[audit.spark.conf]
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.cores.max" = "2"
"""


def python_of_a_cluster(folder: Path) -> Path:
    """Return a Python that has PySpark, PyArrow, DuckDB and Delta, but no klamm, like a cluster's machines."""
    import pyspark

    packages = Path(pyspark.__file__).parents[1]
    program = folder / "python"
    # Without `site`, no .pth file adds this checkout to the path.
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    subprocess.run(
        [program, "-c", "import pyspark, pyarrow, duckdb, cramjam, deltalake"], env=bare(), timeout=60, check=True
    )
    alone = subprocess.run([program, "-c", "import klamm"], env=bare(), timeout=60, check=False, capture_output=True)
    assert b"No module named 'klamm'" in alone.stderr
    return program


def bare() -> dict[str, str]:
    """Return the environment without this checkout."""
    return {key: value for key, value in environment().items() if key != "PYTHONPATH"}


@pytest.mark.timeout(600)
def test_a_cluster_ships_with_the_command_that_submit_prints(spark, master, tmp_path):
    from klamm_spark.lake.layout import Lake
    from klamm_spark.settings.spark import read_pipeline

    events = list(sample_events(EVENTS, step_us=250_000))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=EVENTS // 4)
    (tmp_path / "klamm.toml").write_text(FILE)
    python = python_of_a_cluster(tmp_path)
    arguments = ["klamm.toml", "--master", master, "--once", "--python", str(python)]
    printed = klamm("submit", *arguments, folder=tmp_path)
    assert printed.returncode == 0, printed.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        ["sh", "-c", printed.stdout], capture_output=True, text=True, timeout=DEADLINE_S, env=bare(), cwd=elsewhere
    )
    assert done.returncode == 0, done.stderr
    # spark-submit writes both output streams of a Python program to one stream.
    assert f"shipped {EVENTS:,} events" in done.stdout + done.stderr
    settings = read_pipeline(tmp_path / "klamm.toml", {}).settings
    lake = Lake(settings.lake)
    rows = events_of(spark, lake).select("seq").collect()
    assert sorted(row.seq for row in rows) == list(range(EVENTS))
    ran = [path for number in (1, 2) for path in (tmp_path / f"worker-{number}").glob("app-*/*")]
    assert len({path.parent.parent for path in ran}) == 2, "both workers had an executor"


def test_submit_prints_a_command_that_packs_everything_for_the_executors(tmp_path):
    done = klamm("submit", "--master", "yarn", "--spool", "s", "--lake", "l", "--once", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"/spark-submit --master yarn .*--py-files \S+klamm-audit\.zip", done.stdout)
    assert f" ship --spool {tmp_path / 's'} --lake {tmp_path / 'l'} --once --master yarn" in done.stdout
    # The archive has all parts of klamm that Python needs.
    program = "import sys; sys.path.insert(0, 'klamm-audit.zip'); import klamm_spark.cli as c; print(c.__file__)"
    alone = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    )
    assert "klamm-audit.zip" in alone.stdout


def test_submit_runs_the_command_that_it_prints(tmp_path, monkeypatch, capfd):
    from klamm_spark.cli import main
    from klamm_spark.spark import submit

    program = tmp_path / "pyspark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\nexit 3\n')
    program.chmod(0o755)
    folder_of = submit._folder_of
    monkeypatch.setattr(submit, "_folder_of", lambda name: tmp_path / name if name == "pyspark" else folder_of(name))
    monkeypatch.chdir(tmp_path)
    arguments = ["submit", "--master", "yarn", "--spool", "a spool", "--lake", "l", "--once"]
    assert main(arguments) == 0
    printed = capfd.readouterr().out
    assert main([*arguments, "--run"]) == 3
    assert capfd.readouterr().out.splitlines() == shlex.split(printed)


def test_a_missing_master_is_reported_at_once(tmp_path):
    (tmp_path / "spool").mkdir()
    began = time.monotonic()
    done = klamm("ship", "--spool", "spool", "--lake", "l", "--master", f"spark://{HOST}:1", folder=tmp_path)
    assert (done.returncode, time.monotonic() - began < 20) == (2, True)
    assert done.stderr == f"klamm audit ship: nothing answers at spark://{HOST}:1: Connection refused\n"
