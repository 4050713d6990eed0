"""Someone who can write to the lake and the spool, but has no key, forges streams, keys, records and gaps.

`verify` names the forgery, or says what it cannot prove. `test_lake_evidence` changes single rows, files and seals.
"""

import json
import random
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from klamm_spark.events.event import WAS_SHIPPED
from klamm_spark.lake.forgotten import Record, digests_sha256, write_records
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.proof import prove
from klamm_spark.lake.rows import LakeRows
from klamm_spark.lake.seals import read_seal_files, write_rows
from klamm_spark.lake.tasks import Tasks
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, segment_files
from klamm_spark.spool.signatures import SealSigner, write_key
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.lake_attacks import LakeAttack
from tests.spark.sessions import table_of

BOOT, LATER = "019b8ff8d000c0ffee00", "019b8ff8d001c0ffee00"


def signer_in(folder, name):
    write_key(folder / name)
    return SealSigner(folder / name)


def sign(folder, signer):
    for path in segment_files(folder, SEAL_SUFFIX):
        path.write_bytes(signer.signed(Seal.read(path)).to_json())
    (folder / f"{signer.key_id}.pub").write_bytes(signer.public_pem)


def deleted_gap(seq, first, last, **more):
    event = {"schema_version": 3, "event_id": f"node-1/{LATER}/{seq}", "node": "node-1", "boot": LATER, "seq": seq}
    event |= {"time_us": 1_767_225_700_000_000 + seq, "kind": "audit_gap", "action": "segments_deleted"}
    event |= {"outcome": "error", "reason": "retention_ms", "gap_boot": BOOT}
    return event | {"gap_first_seq": first, "gap_last_seq": last, "gap_count": last - first + 1} | more


@pytest.fixture
def place(ship, tmp_path):
    """Return a signed and shipped spool of node-1: two boots in four segments.

    An event says that retention has deleted the first segment.
    """
    own = signer_in(tmp_path, "own")
    spool = tmp_path / "spool"
    events = list(sample_events(30, boot=BOOT))
    write_sample_spool(spool, events, events_per_segment=10, final=True)
    gaps = [deleted_gap(0, 0, 9, detail=WAS_SHIPPED), *sample_events(9, boot=LATER, first_seq=1)]
    write_sample_spool(spool, gaps)
    sign(spool / "node-1", own)
    settings = settings_of(tmp_path / "lake")
    ship(spool, settings)
    return SimpleNamespace(
        spool=spool, settings=settings, lake=Lake(tmp_path / "lake"), own=own, folder=spool / "node-1"
    )


@pytest.fixture
def verify(place):
    def run(*, spool=False, key_ids=(), **more):
        from klamm_spark.lake import verify

        said = []
        settings = replace(place.settings, key_ids=tuple(key_ids))
        code = verify.run(None, Pipeline(place.spool if spool else None, settings), say=said.append, **more)
        return code, "\n".join(said)

    return run


def rewrite(lake, change):
    """Apply a function of rows to the table of seals."""
    rows = [row for file in read_seal_files(lake, lines_of=None) for row in file.rows]
    shutil.rmtree(lake.seals)
    write_rows(lake, change(rows))


def drop_rows(lake, is_dropped):
    attack = LakeAttack(lake, random.Random(1))
    for path in list(attack.files):
        attack.files = [path]
        attack.rows(lambda rows: [row for row in rows if not is_dropped(row)])


def test_an_unchanged_lake_is_sound_and_its_key_is_named(place, verify):
    for key_ids in ((), [place.own.key_id]):
        for spool in (False, True):
            code, said = verify(spool=spool, key_ids=key_ids)
            assert code == 0, said
            assert f"node-1: 4 signatures of seals in the lake were checked: 4 by {place.own.key_id}" in said


def test_a_missing_first_segment_is_found_even_if_retention_had_deleted_it(place, verify):
    first = f"{BOOT}-{0:020d}"
    rewrite(place.lake, lambda rows: [row for row in rows if row.segment != first])
    drop_rows(place.lake, lambda row: row["boot"] == BOOT and row["seq"] < 10)
    for path in place.folder.rglob(f"{first}.*"):
        path.unlink()
    for spool in (False, True):
        code, said = verify(spool=spool)
        assert code == 1, said
        assert "shipped before it was deleted from the spool, and not in this lake: 0-9" in said
        assert said.count("is segment 1 of node-1; of those before it 0 are in the lake") == 1


def test_replaced_keys_of_the_lake_are_named_and_not_trusted(place, verify, tmp_path):
    foreign = signer_in(tmp_path, "foreign")
    shutil.rmtree(place.lake.root / "keys")
    folder = place.lake.root / "keys" / "node-1"
    folder.mkdir(parents=True)
    (folder / f"{foreign.key_id}.pub").write_bytes(foreign.public_pem)

    def again(rows):
        return [row._replace(seal=foreign.signed(Seal.parse(row.seal)).to_json().decode()) for row in rows]

    rewrite(place.lake, again)
    code, said = verify()
    assert (code, f"4 by {foreign.key_id}" in said) == (0, True)
    code, said = verify(key_ids=[place.own.key_id])
    assert code == 1
    assert said.count(f"its seal is signed with the key {foreign.key_id}, which is not trusted") == 4


def test_removed_keys_and_signatures_are_found_by_the_key_ids(place, verify):
    shutil.rmtree(place.lake.root / "keys")

    def bare(rows):
        return [
            row._replace(seal=replace(Seal.parse(row.seal), key_id="", signature="").to_json().decode()) for row in rows
        ]

    rewrite(place.lake, bare)
    code, said = verify()
    assert (code, "node-1: its seals are not signed" in said) == (0, True)
    code, said = verify(key_ids=[place.own.key_id])
    assert (code, said.count("its seal is not signed")) == (1, 4)


def test_a_stream_of_another_server_with_the_same_name_is_found_by_its_key_ids(place, verify, ship, tmp_path):
    other = signer_in(tmp_path, "other")
    shutil.rmtree(place.lake.root)
    shutil.rmtree(place.spool)
    write_sample_spool(place.spool, sample_events(20, boot="019b8ff8d000deadbeef"), events_per_segment=10)
    sign(place.folder, other)
    ship(place.spool, place.settings)
    assert verify()[0] == 0
    code, said = verify(key_ids=[place.own.key_id])
    assert (code, said.count(f"the key {other.key_id}, which is not trusted")) == (1, 2)


def test_a_record_that_belongs_to_no_lake_does_not_excuse_missing_rows(place, verify):
    last = f"{BOOT}-{20:020d}"
    record = Record(last, 1, 1, "all", 10, "0-99", whole=True, digests_sha256=digests_sha256(""), lake="")
    write_records(place.lake, [(record, "")])
    drop_rows(place.lake, lambda row: row["boot"] == BOOT and row["seq"] >= 20)
    code, said = verify()
    assert (code, "the record of what was forgotten is of another lake: " in said) == (1, True)
    assert f"node-1/{BOOT}: lake 20 events (0-19)" in said


@pytest.mark.parametrize("name", ["junk.jsonl", f"copy/{LATER}-{0:020d}.jsonl", f"{LATER}-{99:020d}.open"])
def test_a_gap_in_an_unsealed_segment_does_not_silently_excuse_missing_events(place, verify, name):
    first = f"{BOOT}-{0:020d}"
    rewrite(place.lake, lambda rows: [row for row in rows if row.segment != first])
    drop_rows(place.lake, lambda row: row["boot"] == BOOT and row["seq"] < 10)
    for path in place.folder.rglob(f"{first}.*"):
        path.unlink()
    gap = json.dumps(deleted_gap(99, 0, 9))
    (place.folder / name).parent.mkdir(exist_ok=True)
    (place.folder / name).write_text(gap + "\n")
    code, said = verify(spool=True)
    assert (code, "reported by audit_gap: 0-9" in said) == (1, False), said


def test_columns_that_were_added_to_a_row_of_the_quarantine_are_found(place, ship):
    lacking = [
        {name: value for name, value in event.items() if name != "outcome"}
        for event in sample_events(3, boot=LATER, first_seq=10)
    ]
    write_sample_spool(place.spool, lacking)
    sign(place.folder, place.own)
    ship(place.spool, place.settings)
    assert table_of(place.lake).column("date").null_count == 3
    assert prove(LakeRows.read(place.lake, Tasks())).breaks == []
    for column, value in (("principal", "User:x"), ("kind", "request"), ("seq", 1), ("kept_line", "{}")):
        copy = shutil.copytree(place.lake.events, place.lake.root / "copy")
        attack = LakeAttack(place.lake, random.Random(1))
        attack.files = [path for path in attack.files if "HIVE_DEFAULT" in str(path)]

        def change(rows, column=column, value=value):
            rows[0][column] = value
            return rows

        attack.rows(change)
        breaks = prove(LakeRows.read(place.lake, Tasks())).breaks
        assert any("a line of the quarantine was" in line for line in breaks), (column, breaks)
        shutil.rmtree(place.lake.events)
        copy.rename(place.lake.events)
