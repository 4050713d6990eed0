"""Tests of a simulated server: a seed repeats answers, logs and steps, and hours pass in seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.testing import SimulatedServer, shrink
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm_broker.log.partition_log import AppendResult, PartitionLog
from tests.sasl_client import handshake, plain, users_setting
from tests.unit.testing import simulated_restarts, simulated_script
from tests.unit.testing.simulated_script import SETTINGS, create, fetch_request, produce_request, run
from tests.unit.testing.simulated_script import play as play_script

ROOT = Path(__file__).parents[3]


def test_a_seed_repeats_bytes_files_and_steps():
    assert len({run(1) for _ in range(5)}) == 1


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_thousand_runs_with_a_seed_are_equal():
    assert len({run(1) for _ in range(1000)}) == 1


def test_another_seed_gives_another_order():
    assert len({run(seed) for seed in range(3)}) == 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", [simulated_script, simulated_restarts])
def test_another_process_and_another_python_give_the_same(module):
    """The other Python is that of `scripts/setup`, with klamm's sources. CI tests further Pythons and a build."""
    first = ROOT / ".venv" / "bin" / "python"
    path = [str(ROOT)] if first.exists() else [str(ROOT), *filter(None, sys.path)]
    # With another seed of hashes, sets of text have another order.
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(path)}
    command = [str(first) if first.exists() else sys.executable, "-m", module.__name__, "1"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == module.run(1)


def test_a_fetch_that_waits_is_answered_by_a_produce_at_the_same_moment():
    with SimulatedServer(seed=1) as server:
        reader, writer = server.connect(), server.connect()
        create(writer)
        waiting = reader.send(fetch_request(0, max_wait_ms=20_000), 12)
        server.run_ms(5_000)
        before_ns = server.clock.monotonic_ns()
        writer.call(produce_request(0, b"one"), 9)
        found = reader.receive(1, 12, waiting)
        assert found.responses[0].partitions[0].high_watermark == 1
        assert server.clock.monotonic_ns() == before_ns


def test_a_client_without_an_answer_names_the_seed():
    with SimulatedServer(seed=4) as server:
        client = server.connect(timeout_s=3)
        create(client)
        with pytest.raises(TimeoutError, match=r"3 simulated seconds \(seed 4\)"):
            client.call(fetch_request(0, max_wait_ms=20_000), 12)


def test_a_connection_that_is_cut_is_closed():
    with SimulatedServer(seed=1) as server:
        client = server.connect()
        client.send_frame(b"\xff" * 20)
        assert client.at_end()


def test_records_are_kept_for_the_next_server_of_a_directory(tmp_path):
    with SimulatedServer(seed=1, data_dir=tmp_path) as server:
        client = server.connect()
        create(client)
        client.call(produce_request(0, b"one"), 9)
    with SimulatedServer(seed=2, data_dir=tmp_path) as server:
        found = server.connect().call(fetch_request(0), 12)
        assert found.responses[0].partitions[0].high_watermark == 1


@pytest.mark.parametrize("kill", [False, True])
def test_records_survive_a_restart(tmp_path, kill):
    for data_dir in (None, tmp_path):
        with SimulatedServer(seed=1, data_dir=data_dir) as server:
            client = server.connect()
            create(client)
            client.call(produce_request(0, b"one"), 9)
            server.restart(kill=kill)
            found = server.connect().call(fetch_request(0), 12)
            assert found.responses[0].partitions[0].high_watermark == 1


def test_a_kill_handles_no_more_requests():
    with SimulatedServer(seed=1) as server:
        client = server.connect()
        create(client)
        client.send(produce_request(0, b"one"), 9)
        server.restart(kill=True)
        found = server.connect().call(fetch_request(0, max_wait_ms=0), 12)
        assert found.responses[0].partitions[0].high_watermark == 0


def test_a_seed_repeats_runs_with_restarts():
    def play(seed):
        with SimulatedServer(SETTINGS, seed=seed) as server:
            play_script(server)
            server.restart(kill=True)
            server.connect().call(fetch_request(0), 12)
            server.restart()
            server.connect().call(fetch_request(0), 12)
            return server.fingerprint()

    assert play(1) == play(1) != play(2)


def test_hours_pass_in_seconds():
    with SimulatedServer(["log.retention.check.interval.ms=60000"], seed=1) as server:
        client = server.connect()
        create(client)
        client.call(produce_request(0, b"one"), 9)
        started_ms = server.clock.wall_ms()
        server.run_ms(3_600_000)
        assert server.clock.wall_ms() - started_ms == 3_600_000


BUG_AFTER_MS = 5_000


@pytest.fixture
def forgetful_log(monkeypatch):
    """Plant a bug: a log acknowledges records after a pause, but does not keep them."""
    append, last_ms = PartitionLog.append, []

    def faulty(log, records, *, now_ms, **options):
        pause_ms = now_ms - last_ms[-1] if last_ms else 0
        last_ms.append(now_ms)
        if pause_ms >= BUG_AFTER_MS:
            return AppendResult(log.end_offset, log.end_offset, -1, log.log_start_offset)
        return append(log, records, now_ms=now_ms, **options)

    monkeypatch.setattr(PartitionLog, "append", faulty)
    return last_ms


@pytest.mark.interpreted
def test_a_failing_script_shrinks_to_its_necessary_steps(forgetful_log):
    def fails(steps):
        """Run a script on a new server. Return True if records are missing at the end."""
        forgetful_log.clear()
        with SimulatedServer(seed=3) as server:
            client = server.connect()
            create(client)
            for step in steps:
                if step == "send":
                    client.call(produce_request(0, b"one"), 9)
                elif step == "fetch":
                    client.call(fetch_request(0, max_wait_ms=0), 12)
                else:
                    server.run_ms(step)
            found = client.call(fetch_request(0, max_wait_ms=0), 12)
            return found.responses[0].partitions[0].high_watermark != steps.count("send")

    script = ["fetch", "send", "send", 500, "fetch", "send", 6_000, "fetch", "send", "send", 700, "fetch"]
    assert shrink(script, fails) == ["send", 6_000, "send"]


def test_a_script_that_passes_cannot_be_shrunk():
    with pytest.raises(ValueError, match="3 steps does not fail"):
        shrink([1, 2, 3], lambda _: False)


def test_each_step_of_a_shrunk_script_is_needed():
    assert shrink(range(100), lambda steps: {3, 50, 97} <= set(steps)) == [3, 50, 97]


@pytest.mark.parametrize(
    "setting",
    [
        "nodes=3",
        'server.extensions=["prometheus"]',
        "listeners.second.bind=127.0.0.1:0",
    ],
)
def test_settings_that_cannot_be_simulated_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="a simulated server cannot have"):
        SimulatedServer([setting], seed=1)


def test_a_seed_repeats_runs_with_several_processors() -> None:
    def play(seed: int) -> tuple[str, set[str]]:
        with SimulatedServer([*SETTINGS, "num.network.threads=3"], seed=seed) as server:
            play_script(server)
            return server.fingerprint(), {name for _moment_ns, name in server.trace}

    first, names = play(1)
    assert play(1) == (first, names)
    assert {"klamm-acceptor-default", "klamm-processor-default-2"} <= names


def test_a_seed_repeats_the_checks_of_logins() -> None:
    def play(seed: int) -> tuple[str, set[str]]:
        settings = ["authenticator=sasl", users_setting(ann="secret"), 'sasl.mechanisms=["PLAIN"]']
        with SimulatedServer([f"listeners.default.{one}" for one in settings], seed=seed) as server:
            clients = [server.connect() for _ in range(4)]
            for client in clients:
                assert handshake(client, "PLAIN").error_code == 0
            sent = [client.send(SaslAuthenticateRequest(plain("ann", "secret")), 2) for client in clients]
            for client, number in zip(clients, sent, strict=True):
                assert client.receive(36, 2, number).error_code == 0
            create(clients[0])
            return server.fingerprint(), {name for _moment_ns, name in server.trace}

    first, names = play(1)
    assert play(1) == (first, names)
    assert any(name.startswith("klamm-sasl-default") for name in names)


def test_a_server_with_many_handlers_becomes_idle() -> None:
    with SimulatedServer(["num.io.threads=64"], seed=1) as server:
        server.run_ms(100)


def test_endless_work_is_named() -> None:
    with SimulatedServer(seed=7) as server:
        wanted = True

        def again() -> None:
            if wanted:
                server.server.scheduler.schedule(0, again)

        again()
        with pytest.raises(RuntimeError, match="seed 7.*klamm-scheduler"):
            server.run_ms(1)
        wanted = False
        running = server.fingerprint()
    assert server.fingerprint() != running
