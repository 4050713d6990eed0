"""Tests of the log over a lake's seals: its tree, its files, the entries of `ship`, and logs of killed drivers."""

import json

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake import seal_log as log_module
from klamm_spark.lake.anchors import compare_anchors, open_anchor, read_anchors
from klamm_spark.lake.appends import read_shipped
from klamm_spark.lake.log_entries import Entry, lines_root
from klamm_spark.lake.seals import Ledger, read_seals
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal
from klamm_spark.tlog.merkle import (
    EMPTY_ROOT,
    ProofError,
    check_consistency,
    leaf_hash,
    path_root,
    root_of,
    tree_of,
)
from klamm_spark.tlog.notes import Checkpoint, NoteKey
from klamm_spark.tlog.submit import UnavailableError
from klamm_spark.tlog.tiles import Tiles, append_entries, tile_name
from tests.unit.audit.logged_lake import NOW_S, LoggedLake

pytest.importorskip("pyarrow")


@pytest.fixture
def place(tmp_path):
    place = LoggedLake(tmp_path)
    yield place
    place.witness.close()


def checkpoint_of(place):
    return Checkpoint.parse((place.log_folder / "checkpoint").read_bytes())


# ---- the tree


def test_every_proof_of_small_trees_proves_its_own_statement_only():
    leaves = [leaf_hash(bytes([number])) for number in range(20)]
    tree = tree_of(leaves)
    roots = [EMPTY_ROOT] + [root_of(leaves[:size]) for size in range(1, 21)]
    for size in range(1, 21):
        assert tree_of(leaves[:size]).root(size) == tree.root(size) == roots[size]
        for index in range(size):
            proof = tree.inclusion(index, size)
            assert path_root(leaves[index], index, size, proof) == roots[size]
            for other in range(size):
                if other != index:
                    with_other = unproven(path_root, leaves[index], other, size, proof)
                    assert with_other != roots[size]
            assert unproven(path_root, leaves[index], index, size, [*proof, leaves[0]]) is None
        for old in range(1, size + 1):
            proof = tree.consistency(old, size)
            check_consistency(old, size, roots[old], roots[size], proof)
            for wrong in ((roots[old - 1], roots[size]), (roots[old], roots[size - 1])):
                with pytest.raises(ProofError):
                    check_consistency(old, size, *wrong, proof)
            for wrong in ([*proof, leaves[0]], proof[:-1], [leaves[0], *proof]):
                with pytest.raises(ProofError):
                    check_consistency(old, size, roots[old], roots[size], wrong if wrong != proof else [leaves[0]])


def unproven(function, *arguments):
    try:
        return function(*arguments)
    except ProofError:
        return None


def test_names_of_tiles_follow_the_specification():
    names = [tile_name(0, 1234067, 256), tile_name(2, 0, 1), tile_name("entries", 999, 12), tile_name(1, 1000, 256)]
    assert names == ["tile/0/x001/x234/067", "tile/2/000.p/1", "tile/entries/999.p/12", "tile/1/x001/000"]


def test_a_log_that_grows_in_steps_equals_one_that_is_written_at_once(tmp_path):
    entries = [f"entry {number}".encode() for number in range(66_000)]
    leaves = list(map(leaf_hash, entries))
    tree, size = tree_of(leaves), 0
    for step in (1, 2, 252, 1, 300, 65_000, 444):
        size = append_entries(tmp_path, size, entries[size : size + step])
        tiles = Tiles(tmp_path, size)
        assert tiles.tree.root(size) == tree.root(size)
        assert list(tiles.entries(size - 1)) == entries[size - 1 : size]
        assert tiles.tree.inclusion(size // 2, size) == tree.inclusion(size // 2, size)
        assert tiles.tree.consistency(max(size - step, 1), size) == tree.consistency(max(size - step, 1), size)
    assert size == len(entries)
    assert list(Tiles(tmp_path, size).entries()) == entries
    # A partial tile is deleted once the full tile exists. With 66,000 leaves the third level has one hash.
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert len([name for name in files if ".p/" not in name and name.startswith("tile/0/")]) == 257
    assert (tmp_path / "tile/2/000.p/1").is_file()
    assert not list(tmp_path.glob("tile/0/000.p"))
    # A reader of an older checkpoint reads the full tile.
    assert Tiles(tmp_path, 3).tree.root(3) == tree.root(3)


# ---- ship


def test_the_log_has_each_seal_once_and_the_last_one_again_after_the_boot_has_ended(place):
    paths = place.write(3)
    ledger = Ledger(place.folder / "spool", place.lake, place.said.append)
    ledger.on_rows = place.open().append
    ledger.add([read_shipped(ledger, path) for path in paths])
    newest = paths[-1].with_suffix(SEAL_SUFFIX)
    final = json.loads(newest.read_bytes()) | {"final": True, "signature": "", "key_id": ""}
    newest.write_bytes(place.server.signed(Seal.parse(json.dumps(final))).to_json())
    ledger.add(())
    ledger.add(())
    entries = [Entry.parse(data) for data in Tiles(place.log_folder, checkpoint_of(place).size).entries()]
    assert [entry.segment for entry in entries] == [*(path.stem for path in paths), paths[-1].stem]
    assert entries[2].lines_root == entries[3].lines_root
    assert entries[2].seal_sha256 != entries[3].seal_sha256
    assert read_seals(place.lake).seals[paths[-1].stem].final
    assert place.check(place.keep()).breaks == []
    place.open()
    assert checkpoint_of(place).size == 4


def test_a_checkpoint_is_signed_by_the_log_and_the_witness_and_anchored(place):
    anchors = place.folder / "anchors"
    place.ship(place.write(2), anchor=open_anchor(str(anchors)))
    checkpoint = checkpoint_of(place)
    assert checkpoint.time_of(place.log_signer.key) == 0
    assert checkpoint.time_of(place.witness_key) == NOW_S
    assert [json.loads(line)["checkpoint"] for line in anchors.read_text().splitlines()] == [str(checkpoint)]
    assert list(compare_anchors(read_anchors(anchors), {})) == []
    assert place.check(anchors=anchors).breaks == []


def test_seals_from_before_the_log_began_are_in_it(place):
    paths = place.write(3)
    ledger = Ledger(place.folder / "spool", place.lake, place.said.append)
    ledger.add([read_shipped(ledger, path) for path in paths])
    place.grow()
    assert checkpoint_of(place).size == 4
    found = place.check(place.keep())
    assert (found.breaks, found.behind) == ([], [])


def test_a_lake_without_a_configured_log_is_not_checked_for_one(place):
    ledger = Ledger(place.folder / "spool", place.lake, place.said.append)
    ledger.add([read_shipped(ledger, path) for path in place.write(2)])
    assert place.check() == ([], [], [])


def test_seals_that_a_killed_driver_did_not_log_are_not_reported_as_broken(place):
    """The seals are that of a segment, and the last seal of a boot that has ended since."""
    (path,) = place.write(1)
    place.ship([path])
    final = json.loads(path.with_suffix(SEAL_SUFFIX).read_bytes()) | {"final": True, "signature": "", "key_id": ""}
    path.with_suffix(SEAL_SUFFIX).write_bytes(place.server.signed(Seal.parse(json.dumps(final))).to_json())
    ledger = Ledger(place.folder / "spool", place.lake, place.said.append)
    ledger.add(())
    found = place.check(place.keep())
    assert (found.breaks, found.behind) == ([], ["log: 1 seals are not in it yet"])
    ledger.add([read_shipped(ledger, each) for each in place.write(1)])
    found = place.check(place.keep())
    assert (found.breaks, found.behind) == ([], ["log: 2 seals are not in it yet"])
    place.open()
    found = place.check(place.keep())
    assert (found.breaks, found.behind) == ([], [])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(8))
def test_a_log_continues_after_a_driver_is_killed_at_any_write(place, monkeypatch, step):
    place.grow(2)
    kept = place.keep("before")
    from klamm_spark.tlog import tiles as tiles_module

    writes = 0
    real = tiles_module.create_durably

    def create(path, data):
        nonlocal writes
        writes += 1
        if writes > step:
            raise Killed
        real(path, data)

    paths = place.write(2)
    with monkeypatch.context() as patch:
        patch.setattr(tiles_module, "create_durably", create)
        patch.setattr(log_module, "create_durably", create)
        try:
            place.ship(paths)
        except Killed:
            pass
        else:
            # The four writes are a bundle, a tile, the checkpoint, and the checkpoint with the cosignature.
            assert writes == 4 <= step
    # Another segment is sealed before the next driver starts, so the order of the incomplete entries changes.
    place.ship(place.write(1))
    assert checkpoint_of(place).time_of(place.witness_key) == NOW_S
    assert checkpoint_of(place).size == 5
    found = place.check(kept, place.keep())
    assert (found.breaks, found.behind) == ([], [])
    assert not any("refuses" in line for line in place.said)


def test_ship_continues_without_the_witness_and_asks_it_again(place):
    answers = [UnavailableError("no answer"), UnavailableError("no answer")]

    def post(url, body):
        if answers:
            raise answers.pop()
        return LoggedLake.post(place, url, body)

    place.post = post
    now = [0.0]
    log = place.ship(place.write(2), monotonic_s=lambda: now[0])
    assert place.said[-1].endswith("has not cosigned 2 entries of the log: no answer")
    for seconds, left in ((30, 1), (70, 0), (90, 0)):
        now[0] = seconds
        log.append(())
        assert len(answers) == left
    assert checkpoint_of(place).time_of(place.witness_key) is None
    now[0] = 140
    log.append(())
    assert checkpoint_of(place).time_of(place.witness_key) == NOW_S


def test_a_log_does_not_continue_if_its_files_differ_from_its_checkpoint(place):
    place.grow(3)
    bundle = place.log_folder / tile_name("entries", 0, 3)
    whole = bundle.read_bytes()
    for damage in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        bundle.write_bytes(damage)
        with pytest.raises(LakeError, match="cannot go on"):
            place.open()
    bundle.write_bytes(whole)
    checkpoint = place.log_folder / "checkpoint"
    for note in (b"", b"x\n1\n\n", checkpoint.read_bytes().replace(b"example.com/lake", b"example.com/other")):
        checkpoint.write_bytes(note)
        with pytest.raises(LakeError, match="cannot go on"):
            place.open()


def test_a_row_that_is_no_seal_is_not_logged(place):
    from klamm_spark.lake.seals import read_seal_files, write_rows

    place.grow(1)
    (row,) = (row for file in read_seal_files(place.lake, lines_of=None) for row in file.rows)
    for number, bad in enumerate((row._replace(node="a b"), row._replace(seal="{}"), row._replace(segment="x"))):
        write_rows(place.lake, [bad._replace(boot=str(number))])
    place.open()
    assert checkpoint_of(place).size == 1


def test_an_entry_names_its_segment():
    entry = Entry("node-1", f"019b8ff8d000c0ffee00-{7:020d}", 9, 3, "ab" * 16, "cd" * 32)
    assert Entry.parse(entry.to_bytes()) == entry
    assert str(entry) == f"019b8ff8d000c0ffee00-{7:020d} of node-1 (events 7 to 9)"
    for bad in (b"", b"klamm-seal/v1 a", entry.to_bytes() + b" more", entry.to_bytes().replace(b" 9 ", b" 09 ")):
        with pytest.raises(ValueError, match=r"."):
            Entry.parse(bad)


def test_the_root_of_lines_depends_on_each_line_and_on_their_order():
    digests = [f"{number:032x}" for number in range(37)]
    roots = {lines_root("".join(digests))}
    for at in range(37):
        roots.add(lines_root("".join([*digests[:at], *digests[at + 1 :]])))
        roots.add(lines_root("".join([digests[at], *digests[:at], *digests[at + 1 :]])) if at else "first")
    assert len(roots) == 1 + 37 + 37


def test_a_verifier_key_is_read_back_and_an_invalid_one_is_refused(place):
    for key in (place.log_signer.key, place.witness_key):
        text = str(key)
        assert NoteKey.parse(text) == key
        for bad in ("", "x", text[:-4], text.replace("+", " "), "a" + text, text.replace("example", "exa mple")):
            with pytest.raises(ValueError, match=r"."):
                NoteKey.parse(bad)
