"""The lake alone proves its content: all changes of its rows, files and seals are found and named."""

import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from klamm_spark.events.event import FIELD_NAMES
from klamm_spark.events.line_order import LINE_ORDER, OTHER_ORDER
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.log_entries import Entry, check_event, event_proof
from klamm_spark.lake.seal_log import TransparencyLog
from klamm_spark.lake.seals import line_digests
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import line_digest
from klamm_spark.spool.signatures import SealSigner, write_key
from klamm_spark.tlog.notes import Checkpoint
from klamm_spark.tlog.tiles import Tiles
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.lake_attacks import LakeAttack
from tests.spark.sealed_lake import (
    FIRST,
    HOUR_US,
    START_US,
    broken,
    digests_now,
    new_signer,
    sealed_lake,
    sign_all,
    verified,
)
from tests.spark.sessions import table_of
from tests.unit.audit.log_attacks import LogAttack
from tests.unit.audit.logged_lake import WITNESS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audit" / "evidence.md"


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    return new_signer(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def sealed(signer, tmp_path_factory):
    return sealed_lake(signer, tmp_path_factory.mktemp("sealed"))


def test_a_kept_checkpoint_reveals_changes_made_with_all_keys(sealed, signer):
    """The attacker changes a row, and rewrites the ledger, its chain, its signatures and the log to fit."""
    attack = LakeAttack(sealed.lake, random.Random(1))
    attack.change_a_row()
    attack.make_seals_fit(digests_now(sealed.lake), signer)
    shutil.rmtree(sealed.lake.root / "tlog")
    TransparencyLog(sealed.lake.root / "tlog", sealed.log_signer, [], lambda line: None).catch_up(sealed.lake)
    code, said = verified(sealed.pipeline)
    assert (code, said[-1].partition(":")[0]) == (3, "the lake is behind")
    assert f"log: {WITNESS} has not signed its newest checkpoint" in said
    code, said = verified(sealed.pipeline, checkpoints=[sealed.kept])
    assert code == 1
    (line,) = (line for line in said if line.startswith("broken chain"))
    assert "the log was forked or rewritten between its entries 0 and 6" in line
    sealed.restore()


def test_a_lake_whose_log_lacks_entries_is_behind(sealed):
    """A driver that is killed between the ledger and the log leaves such a lake.

    The next driver adds the missing entries.
    """
    older = LogAttack(sealed.lake, sealed.copy, (None, sealed.log_signer), random.Random(1), pinned=6)
    older.rebuild(older.entries()[:4])
    code, said = verified(sealed.pipeline)
    assert (code, said[-1].partition(":")[0]) == (3, "the lake is behind")
    assert "log: 2 seals are not in it yet" in said
    sealed.restore()


def test_an_event_is_proven_without_the_spool(sealed):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (script,) = (block for block in blocks if "EventLines" in block)
    script = script.replace("/var/lib/klamm/lake", str(sealed.lake.root))
    names = {}
    exec(script.replace("broker-1/019b8ff8d000c0ffee00s/4711", f"node-1/{FIRST}/17"), names)
    tree = Tiles(sealed.lake.root / "tlog", 6)
    checkpoint = Checkpoint.parse((sealed.lake.root / "tlog" / "checkpoint").read_bytes())
    index, entry = 1, Entry.parse(list(tree.entries())[1])
    (digests,) = line_digests(sealed.lake, [entry.segment])[entry.segment]
    line = names["line"].encode()
    proof = event_proof(entry, digests.index(line_digest(line)), "".join(digests), tree.tree, index, checkpoint)
    assert check_event(line, proof.encode(), [sealed.log_signer.key]).entry.segment == f"{FIRST}-{12:020d}"


def test_lines_have_all_fields_once():
    for order in (OTHER_ORDER, *LINE_ORDER.values()):
        assert sorted(order) == sorted(FIELD_NAMES)


def test_an_unchanged_lake_is_proven_without_the_spool(sealed, signer):
    code, said = verified(sealed.pipeline, checkpoints=[sealed.kept])
    assert code == 0, said
    assert f"log: 6 entries are pinned by {sealed.kept}" in said
    assert f"node-1: 6 signatures of seals in the lake were checked: 6 by {signer.key_id}" in said
    assert f"node-1/{FIRST}: lake 36 events (0-35)" in said
    assert table_of(sealed.lake).column("kept_line").null_count == 72


def test_keys_removed_from_the_lake_are_found(sealed):
    keys = sealed.lake.root / "keys"
    kept = keys.rename(keys.with_name("keys-away"))
    try:
        breaks = broken(sealed.lake)
    finally:
        kept.rename(keys)
    assert len([line for line in breaks if "which is not in the lake" in line]) == 6
    assert broken(sealed.lake) == []


def test_a_segment_that_changed_before_it_was_shipped_is_set_aside_and_named(ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    paths = write_sample_spool(tmp_path / "spool", sample_events(20), events_per_segment=10)
    lines = paths[1].read_bytes().splitlines(keepends=True)
    paths[1].write_bytes(b"".join([lines[0].replace(b'"outcome":"', b'"outcome":"x'), *lines[1:]]))
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=20))
    said = ship(tmp_path / "spool", settings, code=1)
    assert f"{paths[1]} is set aside: it differs from its seal" in said
    code, said = verified(Pipeline(tmp_path / "spool", settings))
    assert code == 1
    assert f"broken chain: {paths[1]} was changed: its SHA-256 differs from its seal" in said
    assert "  not shipped: 10-19" in said
    code, said = verified(Pipeline(None, settings))
    assert code == 1
    assert any("1 segments between it and" in line for line in said)


def test_each_column_of_a_row_with_a_kept_line_is_proven(ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    events = list(sample_events(12))
    # One line has an escaped character, and one is from a later klamm.
    events[4]["client_id"] = "kläranlage"
    events[8] |= {"schema_version": events[8]["schema_version"] + 1, "later": 1}
    write_sample_spool(tmp_path / "spool", events)
    ship(tmp_path / "spool", settings)
    pipeline, lake = Pipeline(None, settings), Lake(settings.lake)
    assert [table_of(lake).column(name).null_count for name in ("kept_line", "newer_line")] == [11, 11]
    assert verified(pipeline)[0] == 0
    shutil.copytree(lake.events, tmp_path / "events")
    for seq in (4, 8):
        for column, value in (("principal", "User:someone-else"), ("total_time_ms", 9.5), ("resources", None)):
            event_id = f"node-1/{FIRST}/{seq}"

            def change(rows, event_id=event_id, column=column, value=value):
                (row,) = (row for row in rows if row["event_id"] == event_id)
                assert row[column] != value
                row[column] = value
                return rows

            LakeAttack(lake, random.Random(1)).rows(change)
            code, said = verified(pipeline)
            assert code == 1
            assert any(f"{event_id} was changed" in line for line in said), said
            shutil.rmtree(lake.events)
            shutil.copytree(tmp_path / "events", lake.events)


def test_segments_that_are_missing_at_the_end_are_found_by_their_anchors(ship, tmp_path):
    settings = settings_of(tmp_path / "lake", anchor=str(tmp_path / "anchors"))
    lake = Lake(settings.lake)
    write_sample_spool(tmp_path / "spool", sample_events(10))
    ship(tmp_path / "spool", settings)
    shutil.copytree(lake.root, tmp_path / "earlier")
    (last,) = write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=10))
    ship(tmp_path / "spool", settings)
    assert verified(Pipeline(None, settings), anchors=tmp_path / "anchors")[0] == 0
    shutil.rmtree(lake.root)
    shutil.copytree(tmp_path / "earlier", lake.root)
    assert verified(Pipeline(None, settings))[0] == 0
    code, said = verified(Pipeline(None, settings), anchors=tmp_path / "anchors")
    assert code == 1
    assert (
        f"broken chain: {last.stem} of node-1 was anchored ({tmp_path / 'anchors'}:2), and the lake has no seal of it"
        in said
    )


def test_forgotten_events_are_deleted_and_the_others_stay_proven(ship, signer, tmp_path):
    from klamm_spark.lake import forget
    from klamm_spark.lake.forgotten import read_forgotten

    write_key(tmp_path / "key")
    settings = settings_of(tmp_path / "lake")
    pipeline, lake, said = Pipeline(None, settings), Lake(tmp_path / "lake"), []
    events = list(sample_events(60, step_us=HOUR_US // 10))
    sign_all(write_sample_spool(tmp_path / "spool", events, events_per_segment=20), signer)
    ship(tmp_path / "spool", settings)
    # The records name all of the first segment and half of the second. Then the connections of the rest are deleted.
    before_us = START_US + 3 * HOUR_US
    for kinds, until_us in (((), before_us), (("connection",), before_us + HOUR_US)):
        assert forget.run(pipeline, before_us=until_us, kinds=kinds, key=tmp_path / "key", say=said.append) == 0
    left = set(table_of(lake).column("seq").to_pylist())
    old = {e["seq"] for e in events if e["time_us"] < before_us and e["kind"] != "audit_gap"}
    old |= {e["seq"] for e in events if e["time_us"] < before_us + HOUR_US and e["kind"] == "connection"}
    assert left == set(range(60)) - old
    # Only a named key proves whose records these are, because anyone can make a key.
    code, report = verified(pipeline)
    assert code == 4, report
    assert report[-1].startswith("the lake is sound if its records of what was forgotten are yours")
    own = SealSigner(tmp_path / "key").key_id
    code, report = verified(Pipeline(None, replace(settings, key_ids=(signer.key_id, own))))
    assert code == 0, report
    assert any(line.startswith(f"forgotten: {len(old):,} events by ") for line in report)
    code, report = verified(Pipeline(None, replace(settings, key_ids=(signer.key_id,))))
    assert code == 1, report
    # Without the key it is impossible to drop a row and claim that it was forgotten.
    lake_id = lake.table_id()
    known = read_forgotten(lake, lake_id)
    assert (known.breaks, sum(known.signed_by.values())) == ([], known.records)
    lake.table().delete(f"seq = {max(left)}")
    code, report = verified(pipeline)
    assert code == 1
    assert any(f"node-1/{FIRST}/{max(left)} is missing" in line for line in report), report


def test_a_record_of_another_lake_does_not_excuse_missing_rows(ship, tmp_path):
    from klamm_spark.lake import forget
    from klamm_spark.lake.forgotten import Record, digests_sha256, write_records

    write_key(tmp_path / "key")
    paths = write_sample_spool(tmp_path / "spool", sample_events(20), events_per_segment=10)
    old, own = (settings_of(tmp_path / name) for name in ("old", "own"))
    for settings in (old, own):
        ship(tmp_path / "spool", settings)
    said = []
    until_us = START_US + HOUR_US
    assert forget.run(Pipeline(None, old), before_us=until_us, key=tmp_path / "key", say=said.append) == 0
    old_id, own_id = (Lake(settings.lake).table_id() for settings in (old, own))
    assert said[-1] == f"the records are of the lake {old_id}: klamm audit verify --lake-id {old_id} takes no others"
    for given, code in (("", 4), (old_id, 4), (own_id, 1)):
        found, report = verified(Pipeline(None, replace(old, lake_id=given)))
        assert found == code, report
        assert f"forgotten: the lake of the records must be {given or old_id}" in report
    assert any(f"is not the lake {own_id}: its id is {old_id}" in line for line in report)

    shutil.copytree(old.lake / "keys", own.lake / "keys", dirs_exist_ok=True)
    shutil.copytree(old.lake / "forgotten", own.lake / "forgotten")
    assert verified(Pipeline(None, own))[0] == 1
    Lake(own.lake).table().delete("kind <> 'audit_gap'")
    found, report = verified(Pipeline(None, own))
    assert found == 1
    assert len([line for line in report if f"forgotten is of another lake: {old_id}" in line]) == 2
    assert any("lost, and no audit_gap reports it" in line for line in report), report

    # A record of the same lake can only name numbers that the segment had.
    record = Record(paths[1].stem, 1, 1, "all", 10, "10-99", whole=True, digests_sha256=digests_sha256(""), lake=old_id)
    write_records(Lake(old.lake), [(record.signed(SealSigner(tmp_path / "key")), "")])
    found, report = verified(Pipeline(None, old))
    assert found == 1
    assert any(f"{paths[1].stem}: numbers are said to be forgotten that it does not have" in line for line in report)
