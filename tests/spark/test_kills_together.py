"""`kill -9` of servers, of `ship`, of Spark's driver and of its executors, while all of them work.

The lake has each event of the spool once. A kill stops only its own process: other servers, their clients and `ship`
continue. The moments are random: a step of `ship`, and some milliseconds more. After a driver was killed at a commit,
`verify` calls the lake sound before the next driver starts. A time-stamping authority stamps the log's checkpoints.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from klamm_spark.spool.layout import sealed_segments, stream_mark
from klamm_spark.spool.signatures import write_key
from tests.peers.audit_load import Load, audit_settings, read_events
from tests.peers.klamm_server import KlammServer
from tests.peers.time_authority import OPENSSL, TimeAuthority, served
from tests.spark import test_cluster
from tests.spark.sessions import table_of
from tests.waiting import wait_until

pytest.importorskip("rfc3161_client")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="needs the program openssl")

DEADLINE_S = 300
PAUSE_S = 0.02
LONGEST_WAIT_S = 0.3
cluster = test_cluster.master
FILE = """\
[audit]
spool = "spool"

[audit.spark]
lake = "lake"
trigger_interval_ms = 300
max_files_per_trigger = 32
driver_memory = "512m"
log_key = "key"
anchor = "anchors"
timestamps = "{url}"
timestamp_interval_ms = 0
timestamp_roots = "{root}"

[audit.spark.conf]
"spark.cores.max" = "2"
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


class Shipping:
    """`klamm audit ship` that runs until it is killed. A step is a file that is created or grows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._sessions = folder, list[int]()
        lake, self._spool = folder / "lake", folder / "spool"
        self.steps: dict[str, Callable[[], object]] = {
            "data": lambda: sum(1 for _ in lake.glob("events/**/*.parquet")),
            "commit": lambda: sum(1 for _ in lake.glob("events/_delta_log/*.json")),
            "ledger": lambda: sum(1 for _ in lake.glob("seals/*.parquet")),
            "log": lambda: _size_of(lake / "tlog" / "checkpoint"),
            "anchor": lambda: _size_of(folder / "anchors"),
            "mark": lambda: sum(1 for _ in self._spool.glob("*/*/*.shipped")),
        }

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "said").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "klamm", "audit", "ship", "klamm.toml", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=test_cluster.environment(),
                cwd=self._folder,
            )
        self._sessions.append(process.pid)
        return process

    def start(self, master: str) -> None:
        self.process, self._master = self.command("--master", master), master

    def goes_on(self) -> None:
        """Start the driver again if Spark has given up a batch because its executors died too often."""
        if self.process.poll() is not None:
            assert self._master != "none", self.said()
            assert self.process.returncode == 2, self.said()
            self.start(self._master)

    def wait_for(self, step: str) -> None:
        """Return when the step has been taken once more."""
        before, taken = self.steps[step](), self.steps[step]

        def has_come() -> bool:
            self.goes_on()
            return taken() != before

        try:
            wait_until(has_come, within_s=DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{step} did not come: {self.said()}") from error

    def kill(self, word: str, killed: Callable[[], object] = lambda: None) -> bool:
        """Kill the driver, or the first process whose command line has the word. Return False if there is none yet.

        `killed` is called before another driver starts.
        """
        self.goes_on()
        pids = self.processes(word) if word else [self.process.pid]
        for pid in pids[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pids and word != WORDS["executor"]:
            self.process.wait(DEADLINE_S)
            killed()
            self.start(self._master)
        return bool(pids)

    def processes(self, word: str) -> list[int]:
        """Return the processes that this driver, or a worker of the test's cluster, has started."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(entry.name)
                is_ours = os.getsid(pid) == self.process.pid or os.readlink(entry / "cwd").startswith(
                    f"{self._folder}/"
                )
                if is_ours and word in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(pid)
        return found

    def said(self) -> str:
        return (self._folder / "said").read_text(errors="replace")[-4_000:]

    def close(self) -> None:
        """End all processes that killed drivers may have left. Their JVMs end by themselves a moment later."""
        for session in self._sessions:
            with suppress(OSError):
                os.killpg(session, signal.SIGKILL)
        self.process.wait()


WORDS = {"driver": "", "jvm": "org.apache.spark.deploy.SparkSubmit", "executor": "CoarseGrainedExecutorBackend"}
"""A part of the command line of each victim. The driver's Python has none."""


def _size_of(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return None


class PatientServer(KlammServer):
    """A server that may take long to start, because much else runs on the machine."""

    start_timeout_s = stop_timeout_s = DEADLINE_S


class Scene:
    """Two servers with one spool, their clients, and `ship`. One of the servers is never killed."""

    def __init__(self, folder: Path, killed: KlammServer, steady: KlammServer, choose: random.Random) -> None:
        self.server, self._choose, self._life, self._folder = killed, choose, 0, folder
        self.ship = Shipping(folder)
        self.loads = [Load(killed.port, 0, PAUSE_S), Load(steady.port, "steady", PAUSE_S)]
        self.kills: Counter[str] = Counter()

    def kill(self, victim: str) -> None:
        """Kill the victim at a random moment, start it again, and check that all others continue."""
        step = self._choose.choice(["start", *self.ship.steps])
        if step != "start":
            self.ship.wait_for(step)
        time.sleep(self._choose.choice((0, self._choose.uniform(0, LONGEST_WAIT_S))))
        if victim == "server":
            self._kill_the_server()
        else:
            killed = partial(it_is_sound, self._folder) if step == "commit" else lambda: None
            wait_until(lambda: self.ship.kill(WORDS[victim], killed), within_s=DEADLINE_S)
        self.kills[victim] += 1
        for load in self.loads:
            answered = len(load.answered)
            wait_until(lambda load=load, answered=answered: len(load.answered) > answered)
            assert load.is_served()

    def _kill_the_server(self) -> None:
        self.server.kill9()
        self.loads[0].join()
        self.ship.goes_on()
        self.server.start()
        self._life += 1
        self.loads[0] = Load(self.server.port, self._life, PAUSE_S)


@contextmanager
def scene(folder: Path, choose: random.Random) -> Iterator[Scene]:
    write_key(folder / "key")
    authority = TimeAuthority(folder / "authority")
    settings = audit_settings(folder / "spool") | {"listeners.default.audit.segment_age_ms": "300"}
    steady = settings | {"listeners.default.audit.node": "node-2"}
    with (
        served(authority) as url,
        PatientServer(folder / "s1", settings) as one,
        PatientServer(folder / "s2", steady) as two,
    ):
        (folder / "klamm.toml").write_text(FILE.replace("{url}", url).replace("{root}", str(authority.root)))
        found = Scene(folder, one, two, choose)
        try:
            yield found
        finally:
            found.ship.close()
        for server, load in zip((one, two), found.loads, strict=True):
            server.stop()
            load.join()


def verified(folder: Path) -> tuple[int, list[str]]:
    """Return the exit code and the output of `verify`."""
    from klamm_spark.lake import verify
    from klamm_spark.settings.spark import read_pipeline

    said: list[str] = []
    pipeline = read_pipeline(folder / "klamm.toml", {})
    return verify.run(None, pipeline, say=said.append, anchors=folder / "anchors"), said


def it_is_sound(folder: Path) -> None:
    """Check that nothing is broken or lost. The lake may lack the newest segments."""
    from klamm_spark.lake import verify

    code, said = verified(folder)
    assert code in (0, verify.EXIT_BEHIND), "\n".join(said)


def everything_is_there_once(folder: Path, kills: Counter[str]) -> None:
    from klamm_spark.lake.layout import Lake
    from klamm_spark.settings.spark import read_pipeline

    pipeline = read_pipeline(folder / "klamm.toml", {})
    events = [event for each in sorted((folder / "spool").iterdir()) for event in read_events(each)]
    columns = ["node", "boot", "seq"]
    rows = table_of(Lake(pipeline.settings.lake)).select(columns)
    written = sorted(tuple(event[column] for column in columns) for event in events)
    assert sorted(zip(*rows.to_pydict().values(), strict=True)) == written
    assert len(set(written)) == len(written)
    crashes = {(event["node"], event["gap_boot"]) for event in events if event["kind"] == "audit_gap"}
    assert {node for node, _ in crashes} == {"node-1"}
    assert len([boot for _, boot in crashes if stream_mark(boot) == ""]) == kills["server"]
    code, said = verified(folder)
    assert code == 0, "\n".join(said)
    segments = sum(len(sealed_segments(each)) for each in (folder / "spool").iterdir())
    assert any(line.endswith(" time stamps") for line in said)
    print(f"{kills.total()} kills, {len(written):,} events, {segments:,} segments")


def kill_together(folder: Path, rounds: list[tuple[str, list[str]]], choose: random.Random) -> Counter[str]:
    """Kill the victims of each master of Spark in a random order, and check the lake."""
    with scene(folder, choose) as found:
        for master_url, victims in rounds:
            found.ship.start(master_url)
            for victim in choose.sample(victims, len(victims)):
                found.kill(victim)
            found.ship.close()
        kills = found.kills
    last = Shipping(folder).command("--once", "--master", "none")
    # Ship the rest that a slow machine could not ship meanwhile.
    assert last.wait() == 0, (folder / "said").read_text()[-4_000:]
    everything_is_there_once(folder, kills)
    return kills


@pytest.mark.timeout(900)
def test_six_kills_lose_and_repeat_no_event_and_stop_no_other_process(tmp_path: Path, seed: int) -> None:
    rounds = [("none", ["server"] * 2 + ["driver"] * 4)]
    assert kill_together(tmp_path, rounds, random.Random(seed)).total() == 6


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kills_of_servers_and_drivers_lose_and_repeat_no_event(tmp_path: Path, seed: int) -> None:
    rounds = [("none", ["server"] * 60 + ["driver"] * 70)]
    assert kill_together(tmp_path, rounds, random.Random(seed)).total() == 130


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_kills_of_spark_lose_and_repeat_no_event(tmp_path: Path, seed: int, cluster: str) -> None:
    """Together with the other test these are 200 kills."""
    rounds = [(cluster, ["server"] * 20 + ["driver"] * 10 + ["jvm"] * 10 + ["executor"] * 30)]
    assert kill_together(tmp_path, rounds, random.Random(seed)).total() == 70
