"""Tests of a log of audit seals with other software: torchwood reads its tiles from a web server and checks proofs."""

from __future__ import annotations

import functools
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from klamm_spark.cli import main
from klamm_spark.tlog.notes import Checkpoint
from klamm_spark.tlog.tiles import Tiles, append_entries
from tests.peers.tlogcheck_program import SOURCE, tlogcheck
from tests.unit.audit.log_attacks import LOG_WAYS, LogAttack
from tests.unit.audit.logged_lake import ORIGIN, WITNESS, LoggedLake

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def go() -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    fetched = subprocess.run(["go", "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"go mod download fails: {fetched.stderr[-500:]}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedLake]:
    place = LoggedLake(tmp_path_factory.mktemp("foreign"))
    place.grow(3)
    shutil.copytree(place.folder / "lake", place.folder / "older")
    place.grow(4)
    place.keep()
    place.grow(2)
    shutil.copytree(place.folder / "lake", place.folder / "copy")
    yield place
    place.witness.close()


@pytest.fixture(scope="module")
def url(place: LoggedLake) -> Iterator[str]:
    """Yield the URL of the log on a web server that knows nothing about logs."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(place.log_folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def restore(place: LoggedLake) -> None:
    shutil.rmtree(place.folder / "lake")
    shutil.copytree(place.folder / "copy", place.folder / "lake")


def seed_of(place: LoggedLake) -> str:
    key = load_pem_private_key((place.folder / "keys" / "witness").read_bytes(), None)
    return key.private_bytes_raw().hex()  # type: ignore[union-attr]


def look(place: LoggedLake, url: str, *proofs: Path) -> tuple[int, str, str]:
    kept = place.kept / "checkpoint"
    done = tlogcheck("check", url, place.log_signer.key, WITNESS, seed_of(place), kept, *proofs)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_torchwood_reads_the_log_and_checks_its_proofs(
    place: LoggedLake, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    restore(place)
    event = sorted((place.folder / "spool").rglob("*.jsonl"))[1].read_bytes().splitlines()[3]
    (place.folder / "line").write_bytes(event)
    proofs = []
    for name, asked in (
        ("event", ("--line", place.folder / "line")),
        ("grown", ("--since", place.kept / "checkpoint")),
    ):
        capsys.readouterr()
        assert main(["prove", str(place.lake.root), *map(str, asked)]) == 0
        proofs.append(place.folder / name)
        proofs[-1].write_text(capsys.readouterr().out)
    code, entries, problem = look(place, url, *proofs)
    assert code == 0, problem
    assert entries.encode().splitlines() == list(Tiles(place.log_folder, 9).entries())
    for proof in proofs:
        whole = proof.read_text()
        lines = whole.split("\n")
        at = next(number for number, line in enumerate(lines) if len(line) == 44)
        proof.write_text("\n".join([*lines[:at], lines[at][::-1][1:] + "=", *lines[at + 1 :]]))
        assert look(place, url, proof)[0] == 1
        proof.write_text(whole)


def test_torchwood_reads_a_log_of_three_levels(place: LoggedLake, url: str) -> None:
    """The entries are made up, because only the tiles matter."""
    restore(place)
    shutil.rmtree(place.log_folder)
    signer, size = place.log_signer, 0
    for step in (200, 400, 65_000):
        size = append_entries(place.log_folder, size, [b"entry %d" % number for number in range(size, size + step)])
        checkpoint = Checkpoint(ORIGIN, size, Tiles(place.log_folder, size).tree.root(size))
        checkpoint = checkpoint.signed(signer.line(checkpoint.text))
        place.log_folder.joinpath("checkpoint").write_text(str(checkpoint))
        if size < 65_000:
            # The checkpoint has a signature of a witness from another project.
            done = tlogcheck("cosign", WITNESS, seed_of(place), stdin=str(checkpoint).encode())
            cosigned = Checkpoint.parse(done.stdout)
            assert cosigned == checkpoint
            assert (cosigned.time_of(place.witness_key) or 0) > 1_700_000_000
            kept = place.kept / "small"
            kept.write_text(str(checkpoint.signed("".join(line.text for line in cosigned.lines))))
    done = tlogcheck("tree", url, signer.key, WITNESS, seed_of(place), kept)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tries", [len(LOG_WAYS), pytest.param(300, marks=pytest.mark.slow)])
def test_torchwood_notices_changes_of_the_log(place: LoggedLake, url: str, seed: int, tries: int) -> None:
    """Changes of the ledger alone do not matter to the log."""
    choose = random.Random(seed)
    seen = 0
    for number in range(tries):
        restore(place)
        attack = LogAttack(place.lake, place.folder / "older", (place.server, place.log_signer), choose, pinned=7)
        getattr(attack, LOG_WAYS[number % len(LOG_WAYS)])()
        code, _, problem = look(place, url)
        assert code == (1 if attack.in_log else 0), (LOG_WAYS[number % len(LOG_WAYS)], problem)
        seen += code
    assert seen >= tries // 2
    restore(place)
