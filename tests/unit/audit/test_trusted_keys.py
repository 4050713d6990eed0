"""Someone who can write to the lake can add keys: `verify` names the keys that it used, or accepts only given ones."""

import shutil
from dataclasses import replace

import pytest

from klamm_spark.lake.forgotten import Record, digests_sha256, keep_key, read_forgotten, write_records
from klamm_spark.lake.keys import keys_of, remember_keys
from klamm_spark.lake.layout import Lake
from klamm_spark.spool.chain import NodeFolder, SealChain, read_folder
from klamm_spark.spool.layout import SEAL_SUFFIX, Seal, sealed_segments, segment_files
from klamm_spark.spool.signatures import SealSigner, write_key
from klamm_spark.storage.filesystems import SMALL_BYTES
from tests.audit_samples import sample_events, write_sample_spool

pytest.importorskip("pyarrow")


@pytest.fixture
def signers(tmp_path):
    """Return the server's key, and an attacker's."""
    return [SealSigner(path) for path in (tmp_path / "own", tmp_path / "foreign") if write_key(path)]


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


def sign(folder, signer, of=slice(None)):
    for path in segment_files(folder, SEAL_SUFFIX)[of]:
        path.write_bytes(signer.signed(Seal.read(path)).to_json())
    (folder / f"{signer.key_id}.pub").write_bytes(signer.public_pem)


@pytest.fixture
def folder(tmp_path, signers, lake):
    """Return a spool of four segments that the server has signed. Its key is in the lake."""
    write_sample_spool(tmp_path / "spool", sample_events(40), events_per_segment=10)
    sign(tmp_path / "spool" / "node-1", signers[0])
    remember_keys(tmp_path / "spool", lake, print)
    return tmp_path / "spool" / "node-1"


def test_the_keys_of_the_signatures_are_named(folder, lake, signers):
    own, foreign = signers
    found = read_folder(folder, keys=keys_of(lake, folder.name))
    assert (found.breaks, found.signers()) == ([], f"4 by {own.key_id}")
    shutil.rmtree(lake.root / "keys")
    sign(folder, foreign)
    remember_keys(folder.parent, lake, print)
    found = read_folder(folder, keys=keys_of(lake, folder.name))
    assert (found.breaks, found.signers()) == ([], f"4 by {foreign.key_id}")


def test_with_trusted_ids_a_key_that_was_added_to_the_lake_proves_nothing(folder, lake, signers):
    own, foreign = signers
    trusted = [own.key_id]
    assert read_folder(folder, keys=keys_of(lake, folder.name, trusted)).breaks == []
    sign(folder, foreign)
    remember_keys(folder.parent, lake, print)
    assert read_folder(folder, keys=keys_of(lake, folder.name)).breaks == []
    breaks = read_folder(folder, keys=keys_of(lake, folder.name, trusted)).breaks
    assert len([line for line in breaks if f"the key {foreign.key_id}, which is not trusted" in line]) == 4


def test_with_trusted_ids_the_removal_of_all_signatures_is_found(folder, lake, signers):
    shutil.rmtree(lake.root / "keys")
    for path in segment_files(folder, SEAL_SUFFIX):
        path.write_bytes(replace(Seal.read(path), key_id="", signature="").to_json())
    assert read_folder(folder, keys=keys_of(lake, folder.name)).breaks == []
    breaks = read_folder(folder, keys=keys_of(lake, folder.name, [signers[0].key_id])).breaks
    assert len([line for line in breaks if line.endswith("its seal is not signed")]) == 4


def test_a_trusted_key_is_read_from_the_spool_if_the_lake_lacks_it(folder, lake, signers):
    shutil.rmtree(lake.root / "keys")
    for trusted, count in (([signers[0].key_id], 0), ([signers[1].key_id], 4)):
        keys = keys_of(lake, folder.name, trusted, folder.parent)
        assert len(read_folder(folder, keys=keys).breaks) == count
    assert not keys_of(lake, folder.name, (), folder.parent)


def test_signatures_that_were_removed_from_the_first_seals_are_counted(folder, lake):
    paths = segment_files(folder, SEAL_SUFFIX)
    for path in paths[:3]:
        path.write_bytes(replace(Seal.read(path), final=True, key_id="", signature="").to_json())
    found = NodeFolder("node-1", "")
    chain = SealChain(found, keys_of(lake, folder.name))
    for path in paths:
        chain.add(path.stem, path.stem, Seal.read(path))
    chain.end()
    assert (found.breaks, found.signed, found.unsigned) == ([], 1, 3)


@pytest.mark.parametrize("signed_by", [None, 0, 1])
def test_with_trusted_ids_only_deletion_records_of_these_keys_count(lake, signers, signed_by):
    record = Record("s", 1, 1, "all", 0, "", whole=False, digests_sha256=digests_sha256(""), lake="one")
    if signed_by is not None:
        record = record.signed(signers[signed_by])
        keep_key(lake, signers[signed_by])
    write_records(lake, [(record, "")])
    assert read_forgotten(lake, "one").breaks == []
    assert len(read_forgotten(lake, "one", [signers[0].key_id]).breaks) == (signed_by != 0)


@pytest.mark.parametrize(
    ("of", "problem"),
    [("one", None), ("another", "is of another lake: another"), ("", "is of another lake: ")],
)
def test_a_deletion_record_counts_only_in_its_own_lake(lake, signers, of, problem):
    record = Record("s", 1, 1, "all", 0, "", whole=True, digests_sha256=digests_sha256(""), lake=of)
    keep_key(lake, signers[0])
    write_records(lake, [(record.signed(signers[0]), "")])
    known = read_forgotten(lake, "one")
    assert [line.partition(" forgotten ")[2] for line in known.breaks] == ([problem] if problem else [])
    assert list(known.segments) == ([] if problem else ["s"])


def test_without_a_key_a_record_cannot_be_moved_to_another_lake(lake, signers):
    record = Record("s", 1, 1, "all", 0, "", whole=True, digests_sha256=digests_sha256(""), lake="another")
    keep_key(lake, signers[0])
    write_records(lake, [(replace(record.signed(signers[0]), lake="one"), "")])
    known = read_forgotten(lake, "one")
    assert (known.segments, ["wrong signature" in line for line in known.breaks]) == ({}, [True])


def test_folders_of_nodes_that_were_swapped_are_found(folder, lake, signers):
    spool = folder.parent
    write_sample_spool(spool, sample_events(40, node="node-2"), events_per_segment=10)
    sign(spool / "node-2", signers[1])
    remember_keys(spool, lake, print)
    folder.rename(spool / "away")
    (spool / "node-2").rename(folder)
    (spool / "away").rename(spool / "node-2")
    for name in ("node-1", "node-2"):
        breaks = read_folder(spool / name, keys=keys_of(lake, name)).breaks
        assert len([line for line in breaks if "which is not in the lake" in line]) == 4


@pytest.mark.parametrize("boot", ["019b8ff8cfffc0ffee00", "019b8ff8d001c0ffee00"])
def test_a_boot_that_was_copied_under_another_name_is_found(folder, lake, boot):
    for path in [*sealed_segments(folder), *segment_files(folder, SEAL_SUFFIX)]:
        data = path.read_bytes()
        name = path.name.replace(path.name[:20], boot)
        if path.suffix == SEAL_SUFFIX:
            seal = Seal.parse(data)
            data = replace(seal, boot=boot, segment=name.removesuffix(SEAL_SUFFIX)).to_json()
        path.with_name(name).write_bytes(data)
    breaks = read_folder(folder, keys=keys_of(lake, folder.name)).breaks
    assert len([line for line in breaks if boot in line and "the signature of its seal is wrong" in line]) == 4
    assert any("was inserted: they have the indexes" in line for line in breaks)


def test_a_key_that_is_too_large_is_named_and_skipped(folder, lake, signers):
    (folder / "x.pub").write_bytes(b"x" * (SMALL_BYTES + 1))
    (folder / "y.pub").mkdir()
    said = []
    remember_keys(folder.parent, lake, said.append)
    assert sorted(said) == [
        f"{folder / 'x.pub'} has 1,048,577 bytes, and at most 1,048,576 are read",
        f"{folder / 'y.pub'} is no file",
    ]
