"""Folders, sockets and pipes with the name of a file of the spool or the lake are named.

They stop and delay nothing else.
"""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from klamm_spark import cli
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, open_segments
from klamm_spark.spool.signatures import SealSigner, write_key
from klamm_spark.tlog.merkle import EMPTY_ROOT
from klamm_spark.tlog.notes import LOG_KEY, Checkpoint, NoteSigner
from tests.audit_samples import sample_events, write_sample_spool
from tests.unit.audit.test_spool import seals, with_a_sealed_segment

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
if not hasattr(os, "mkfifo"):
    pytest.skip("pipes and sockets with names are of Unix", allow_module_level=True)

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 500


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as listener:
        # A whole path may be longer than the path of a socket.
        listener.bind(os.path.relpath(path))


KINDS = {"a socket": make_socket, "a pipe": os.mkfifo, "a folder": Path.mkdir}
PLACES = {
    "segment": lambda path: path,
    "seal": lambda path: path.with_suffix(SEAL_SUFFIX),
    "open": lambda path: path.parents[1] / f"{path.stem[:-2]}30.open",
    "key": lambda path: path.parents[1] / f"{'a' * 32}.pub",
    "mark": lambda path: path.with_suffix(".shipped"),
    "day": lambda path: path.parents[1] / "2026-02-01",
}
IN_THE_LAKE = (
    "seals/x.parquet",
    "forgotten/x.parquet",
    "keys/key/x.pub",
    "tlog/checkpoint",
    "events/_delta_log/_last_checkpoint",
)


def audit(*arguments):
    """Run a command in a process that can be ended while it waits. Return its code and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "klamm", "audit", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def make(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return request.param


@pytest.fixture
def odd(tmp_path, make):
    """Return a spool with a node for each kind.

    In each node the second of three segments is something else than a file.
    """
    write_key(tmp_path / "key")
    signer, found = SealSigner(tmp_path / "key"), {}
    for node, place in PLACES.items():
        paths = write_sample_spool(tmp_path / "spool", sample_events(30, node=node), events_per_segment=10, final=True)
        for path in paths:
            seal = path.with_suffix(SEAL_SUFFIX)
            seal.write_bytes(signer.signed(Seal.read(seal)).to_json())
        (tmp_path / "spool" / node / f"{signer.key_id}.pub").write_bytes(signer.public_pem)
        found[node] = place(paths[1])
        found[node].unlink(missing_ok=True)
        make(found[node])
    return found


@pytest.fixture
def main(capsys):
    """Return a function that runs a command in this process. It returns the exit code and the output."""

    def run(*arguments):
        code = cli.main([str(each) for each in arguments])
        return code, "".join(capsys.readouterr())

    return run


def test_the_other_segments_are_shipped_and_read(tmp_path, odd, main):
    from klamm_spark.lake.files import files_of, read_columns
    from klamm_spark.lake.layout import Lake

    places = "--spool", tmp_path / "spool", "--lake", tmp_path / "lake"
    code, said = main("ship", "--once", *places)
    assert code == 1, said
    for node in ("segment", "seal", "key"):
        assert f"{odd[node]} is no file" in said
    batches = read_columns(files_of(Lake(tmp_path / "lake")), ["node"])
    counts = Counter(node for batch in batches for node in batch.column("node").to_pylist())
    assert counts == {node: 20 if node in ("segment", "seal") else 30 for node in PLACES}

    code, said = main("verify", *places)
    assert code == 1, said
    assert f"broken chain: {odd['segment']} was changed" in said
    assert f"{odd['seal'].with_suffix('.jsonl')} was inserted, or its seal was removed" in said

    code, said = main("tail", "--lines", "1000", *places[:2])
    assert code == 1, said
    assert all(f"{odd[node]} cannot be read" in said for node in ("segment", "open"))
    assert len([line for line in said.splitlines() if line.startswith("2026-01-01T")]) == 30 * len(PLACES) - 10

    # A report about a part of the events would look like a report about all.
    for command in ("report", "detect"):
        code, said = audit(command, *places[:2])
        assert (code, f"klamm audit {command}: {odd['open']} is no file" in said) == (2, True), said


@pytest.mark.parametrize("place", IN_THE_LAKE)
def test_such_an_entry_in_the_lake_is_named(tmp_path, make, place, main):
    write_sample_spool(tmp_path / "spool", sample_events(10, node="key"))
    assert main("ship", "--once", "--spool", "spool", "--lake", "lake")[0] == 0
    path = tmp_path / "lake" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    code, said = audit("verify", "--lake", tmp_path / "lake")
    assert f"{path} is no file" in said or f"{path} was taken away or changed" in said, said
    assert code in (1, 2)


def test_a_server_puts_such_entries_aside_and_continues(tmp_path, make):
    writer = with_a_sealed_segment(tmp_path / "node")
    writer.write(2)
    (path,), (seal,) = open_segments(writer.folder), writer.folder.rglob("*.seal")
    writer.die()
    for each in (path, seal):
        each.unlink()
        make(each)
    make(writer.folder / "2026-02-01")
    (recovered,) = writer.start("11111111")
    assert recovered.unreadable == f"{seal.name}.unreadable: {seal} is no file"
    assert all(each.with_name(f"{each.name}.unreadable").exists() for each in (path, seal))
    writer.write()
    writer.spool.close()
    assert len(seals(writer.folder)) == 1


def test_anchors_may_be_read_from_a_pipe(tmp_path, main):
    write_sample_spool(tmp_path / "spool", sample_events(10))
    places = "--spool", tmp_path / "spool", "--lake", tmp_path / "lake"
    assert main("ship", "--once", *places)[0] == 0
    seal = {"node": "node-1", "segment": "gone", "index": 1, "chain": "", "sealed_time_us": 1}
    write_key(tmp_path / "log")
    signer = NoteSigner(SealSigner(tmp_path / "log"), "example.com/log", LOG_KEY)
    checkpoint = Checkpoint("example.com/log", 1, EMPTY_ROOT)
    checkpoint = str(checkpoint.signed(signer.line(checkpoint.text)))
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in (seal, {"checkpoint": checkpoint}))
    code, said = main("verify", *places, "--anchors", f"/dev/fd/{reads}")
    os.close(reads)
    assert code == 1
    assert f"gone of node-1 was anchored (/dev/fd/{reads}:1), and the lake has no seal of it" in said
    assert f"{tmp_path / 'lake' / 'tlog' / 'checkpoint'} was taken away or changed" in said
