"""With one key of a witness and one checkpoint that it has cosigned, `verify` names all changes of earlier entries."""

import itertools
import random
import shutil

import pytest

from klamm_spark.lake.proof import check_seals
from klamm_spark.lake.seals import read_seals
from klamm_spark.spool.signatures import KeyFileError
from tests.trail_attacks import TrailAttack, drawn, files_by_kind, not_named, ways
from tests.unit.audit.logged_lake import LoggedLake

pytest.importorskip("pyarrow")

LATER = "019b8ff8d001c0ffee00"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """Return a lake of some segments, an older copy of it, and a copy of its state before the attack."""
    place = LoggedLake(tmp_path_factory.mktemp("attacked"))
    place.grow(3)
    shutil.copytree(place.lake.root, place.folder / "older")
    place.grow(4)
    place.grow(2, final=True)
    place.kept_checkpoint = place.keep()
    place.grow(3)
    shutil.copytree(place.lake.root, place.folder / "copy")
    yield place
    place.witness.close()


def restore(place):
    shutil.rmtree(place.lake.root)
    shutil.copytree(place.folder / "copy", place.lake.root)


def attack_of(place, choose):
    keys = place.server, place.log_signer
    return TrailAttack(place.lake, place.folder / "older", keys, choose, pinned=9)


def said_of(place):
    """Return the output of `verify` about everything except the rows."""
    seals, breaks = read_seals(place.lake)
    try:
        folders = check_seals(place.lake, seals)
    except KeyFileError as error:
        return [str(error)]
    found = place.check(place.kept_checkpoint)
    return [*breaks, *(line for folder in folders for line in folder.breaks), *found.breaks, *found.behind]


@pytest.mark.parametrize("tries", [50, pytest.param(300, marks=pytest.mark.slow)])
def test_each_attack_on_the_log_or_the_seals_is_named_with_one_key_and_one_checkpoint(attacked, seed, tries):
    choose = random.Random(seed)

    def start():
        restore(attacked)
        return attack_of(attacked, choose)

    restore(attacked)
    assert said_of(attacked) == []
    known = [way for way in ways() if not way.needs_rows]
    for way, attack in drawn(choose, tries, start, known):
        assert not_named(attack.touched, said_of(attacked)) == {}, way


def test_every_file_of_a_lake_and_every_part_of_a_log_has_attacks(attacked):
    restore(attacked)
    found = files_by_kind(attacked.lake.root)
    assert {kind for kind, files in found.items() if files} == {"seals", "keys", "entries", "tiles", "checkpoint"}
    (attacked.lake.root / "tlog" / "later").write_text("x")
    with pytest.raises(AssertionError, match="no attack is known"):
        files_by_kind(attacked.lake.root)
    names = {way.name for way in ways()}
    assert {
        "seal chain",
        "seal chain signed",
        "ledger lines",
        "entry lines_root",
        "keys_flip",
        "checkpoint root",
    } < names


def test_a_witness_refuses_50_of_50_forks(attacked, seed):
    """Each fork is signed with the log's own key, and its proof is correct for the fork."""
    choose = random.Random(seed)
    ways = ("drop_an_entry", "swap_entries", "insert_an_entry", "rewrite_the_ledger_and_the_log")
    answers = []
    for number in range(50):
        restore(attacked)
        witness = attacked.new_witness()
        attack = attack_of(attacked, choose)
        getattr(attack, ways[number % 4])()
        before = len(attacked.said)
        log = attacked.open()
        log.append(())
        assert log.refused
        assert log.checkpoint.time_of(attacked.witness_key) is None
        said = attacked.said[before:]
        assert any("example.com/witness refuses the log" in line for line in said), said
        answers.append(said)
        assert witness.add_checkpoint(request(attacked, log)).status in (409, 422)
    assert len(answers) == 50
    restore(attacked)
    log = attacked.open()
    log.append(())
    assert not log.refused


def request(place, log):
    from klamm_spark.tlog.submit import request_of
    from klamm_spark.tlog.tiles import Tiles

    size = min(12, log.checkpoint.size)
    return request_of(
        size, Tiles(place.log_folder, log.checkpoint.size).tree.consistency(size, log.checkpoint.size), log.checkpoint
    )


def test_a_log_that_a_named_key_has_not_signed_is_not_called_sound(attacked):
    restore(attacked)
    assert (attacked.check().breaks, attacked.check().behind) == ([], [])
    attack = attack_of(attacked, random.Random(1))
    attack.swap_entries()
    found = attacked.check()
    assert (found.breaks, found.behind) == ([], ["log: example.com/witness has not signed its newest checkpoint"])
    restore(attacked)
    checkpoint = attacked.log_folder / "checkpoint"
    head, _, end = checkpoint.read_text().rpartition(" ")
    checkpoint.write_text(f"{head} {end[:20]}{'A' if end[20] != 'A' else 'B'}{end[21:]}")
    (line,) = attacked.check().breaks
    assert line == f"{checkpoint} was changed: the signature of example.com/witness is wrong"
    restore(attacked)


def test_several_checkpoints_show_where_a_rewritten_log_differs(tmp_path):
    place = LoggedLake(tmp_path)
    kept = []
    for size in range(1, 9):
        place.grow()
        kept.append(place.keep(f"checkpoint-{size}"))
    attack = attack_of(place, random.Random(1))
    entries = attack.entries()
    entries[5], entries[6] = entries[6], entries[5]
    attack.rebuild(entries)
    assert place.check(*kept).breaks[0].startswith("the log was forked or rewritten between its entries 5 and 6: ")
    place.witness.close()


def test_the_witness_refuses_ship_with_a_restored_older_copy(tmp_path):
    place = LoggedLake(tmp_path)
    place.grow(2)
    shutil.copytree(place.lake.root, tmp_path / "older")
    place.grow(2)
    kept = place.keep()
    shutil.rmtree(place.lake.root)
    shutil.copytree(tmp_path / "older", place.lake.root)
    seconds = itertools.count(0, 100)
    log = place.ship(place.write(1), monotonic_s=lambda: next(seconds))
    assert log.refused
    assert "it has cosigned 4 entries, and the log has 3: it was rolled back" in place.said[-1]
    # Later the log has more entries than the witness knows, and is still another log.
    log = place.ship(place.write(4), monotonic_s=lambda: next(seconds))
    assert log.refused
    assert "that the log does not begin with" in place.said[-1]
    assert any("forked or rewritten" in line for line in place.check(kept).breaks)
    place.witness.close()
