"""Tests of signed seals: attacks without the key are found and named, even if everything else is made to fit."""

import errno
import hashlib
import json
import os
import random
from dataclasses import replace

import pytest

from klamm.runtime import PLATFORM
from klamm_spark.cli import main
from klamm_spark.lake.keys import keys_of, remember_keys
from klamm_spark.lake.layout import Lake
from klamm_spark.spool import signatures
from klamm_spark.spool.chain import NodeFolder, SealChain, read_folder
from klamm_spark.spool.compression import compress
from klamm_spark.spool.layout import (
    NO_CHAIN,
    SEAL_SUFFIX,
    Seal,
    chain_of,
    digests_of,
    lines_sha256,
    sealed_segments,
)
from klamm_spark.spool.signatures import KeyFileError, PublicKeys, SealSigner, write_key
from tests.audit_samples import sample_events, write_sample_spool
from tests.unit.audit.test_spool import Writer, seals

LATER_BOOT = "019b8ff8d001c0ffee00"


@pytest.fixture(scope="module")
def signers(tmp_path_factory):
    """Return the server's key, and an attacker's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "foreign"):
        write_key(folder / name)
    return SealSigner(folder / "own"), SealSigner(folder / "foreign")


# ---- attacks


class Attack:
    """Someone who can write to the spool and has no key.

    `touched` are the segments that it has changed.
    """

    def __init__(self, folder, choose):
        self.folder, self.choose = folder, choose
        self.paths = sealed_segments(folder)
        self.touched = set()

    def rows(self, change):
        path = self.choose.choice(self.paths)
        lines = path.read_bytes().splitlines(keepends=True)
        changed = change(lines)
        path.write_bytes(b"".join(changed))
        self.touched.add(path.stem)

    def change_a_row(self):
        def change(lines):
            at = self.choose.randrange(len(lines))
            event = json.loads(lines[at]) | {"outcome": "ok", "principal": "User:someone-else"}
            return [*lines[:at], json.dumps(event, separators=(",", ":")).encode() + b"\n", *lines[at + 1 :]]

        self.rows(change)

    def drop_a_row(self):
        def change(lines):
            at = self.choose.randrange(len(lines))
            return [*lines[:at], *lines[at + 1 :]]

        self.rows(change)

    def repeat_a_row(self):
        self.rows(lambda lines: [*lines, self.choose.choice(lines)])

    def swap_rows(self):
        def change(lines):
            one, other = self.choose.sample(range(len(lines)), 2)
            lines[one], lines[other] = lines[other], lines[one]
            return lines

        self.rows(change)

    def reorder_rows(self):
        self.rows(lambda lines: lines[::-1])

    def move_a_row_to_another_segment(self):
        one, other = self.choose.sample(self.paths, 2)
        first, *rest = one.read_bytes().splitlines(keepends=True)
        one.write_bytes(b"".join(rest))
        other.write_bytes(other.read_bytes() + first)
        self.touched |= {one.stem, other.stem}

    def swap_segments(self):
        one, other = self.choose.sample(self.paths, 2)
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        self.touched |= {one.stem, other.stem}

    def swap_seals(self):
        one, other = (path.with_suffix(SEAL_SUFFIX) for path in self.choose.sample(self.paths, 2))
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        self.touched |= {one.stem, other.stem}

    def drop_a_segment(self):
        # The attack removes a segment before the newest one. A removed end shows only when the server writes again.
        at = self.choose.randrange(1, len(self.paths) - 1)
        self.paths[at].unlink()
        self.paths[at].with_suffix(SEAL_SUFFIX).unlink()
        self.touched |= {self.paths[at].stem, self.paths[at + 1].stem}

    def insert_a_segment(self):
        at = self.choose.randrange(len(self.paths) - 1)
        seal = Seal.read(self.paths[at].with_suffix(SEAL_SUFFIX))
        path = self.folder / f"{seal.boot}-{seal.last_seq:020d}.jsonl"
        path.write_bytes(self.paths[at].read_bytes().splitlines(keepends=True)[-1])
        forged = replace(seal, segment=path.stem, first_seq=seal.last_seq)
        path.with_suffix(SEAL_SUFFIX).write_bytes(forged.to_json())
        self.touched |= {path.stem, self.paths[at + 1].stem}


def leave_as_it_is(attack, signer):
    pass


def reseal(attack, signer, sign=lambda signer, seal: seal):
    """Make all seals fit from the first changed segment on, with an unbroken chain."""
    index, chain, changed = 0, NO_CHAIN, False
    for path in sealed_segments(attack.folder):
        seal, data = Seal.read(path.with_suffix(SEAL_SUFFIX)), path.read_bytes()
        sha256, sealed = hashlib.sha256(data).hexdigest(), lines_sha256(digests_of(data))
        boot, _, first = path.stem.rpartition("-")
        place = {"boot": boot, "segment": path.stem, "first_seq": int(first), "index": index}
        place |= {"sha256": sha256, "lines_sha256": sealed, "events": data.count(b"\n")}
        place["last_seq"] = max(seal.last_seq, place["first_seq"])
        fitting = replace(seal, **place, previous_chain=chain, chain=chain_of(chain, sha256, sealed))
        changed = changed or fitting != seal
        if changed:
            path.with_suffix(SEAL_SUFFIX).write_bytes(sign(signer, fitting).to_json())
        index, chain = index + 1, fitting.chain


def reseal_without_signatures(attack, signer):
    reseal(attack, signer, lambda signer, seal: replace(seal, key_id="", signature=""))


def sign_with_another_key(attack, signer):
    reseal(attack, signer, lambda signer, seal: signer.signed(seal))
    (attack.folder / f"{signer.key_id}.pub").write_bytes(signer.public_pem)


WAYS = [name for name in vars(Attack) if not name.startswith("_") and name != "rows"]
COVERS = [leave_as_it_is, reseal, reseal_without_signatures, sign_with_another_key]


def spool_of(folder, signer):
    """Return a signed spool with two boots in five segments."""
    first = write_sample_spool(folder, sample_events(30), events_per_segment=10, final=True)
    second = write_sample_spool(folder, sample_events(20, boot=LATER_BOOT), events_per_segment=10)
    for path in (*first, *second):
        seal = path.with_suffix(SEAL_SUFFIX)
        seal.write_bytes(signer.signed(Seal.read(seal)).to_json())
    return folder / "node-1"


@pytest.mark.parametrize("tries", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_each_change_is_found_and_named(tmp_path, signers, seed, tries):
    own, foreign = signers
    keys, choose = PublicKeys([own.public_pem]), random.Random(seed)
    assert read_folder(spool_of(tmp_path / "whole", own), keys=keys).breaks == []
    assert read_folder(tmp_path / "whole" / "node-1", keys=keys).signed == 5
    for number in range(tries):
        way, cover = WAYS[number % len(WAYS)], choose.choice(COVERS)
        attack = Attack(spool_of(tmp_path / str(number), own), choose)
        getattr(attack, way)()
        cover(attack, foreign)
        breaks = read_folder(attack.folder, keys=keys).breaks
        assert any(stem in line for line in breaks for stem in attack.touched), (way, cover.__name__, breaks)


@pytest.mark.parametrize("way", WAYS)
def test_without_signatures_a_chain_that_was_made_to_fit_shows_no_break(tmp_path, signers, way, seed):
    """These attacks on a spool without keys show the purpose of signatures. The attacker writes new seals."""
    attack = Attack(spool_of(tmp_path, signers[0]), random.Random(seed))
    getattr(attack, way)()
    reseal_without_signatures(attack, None)
    assert read_folder(attack.folder).breaks == []


def test_a_spool_without_any_signature_is_found_if_the_lake_has_a_key(tmp_path, signers):
    (path,) = write_sample_spool(tmp_path, sample_events(10))
    assert read_folder(path.parent, keys=PublicKeys([])).breaks == []
    (flaw,) = read_folder(path.parent, keys=PublicKeys([signers[0].public_pem])).breaks
    assert flaw == f"{path.with_suffix('')}: its seal is not signed"


def test_segments_from_before_the_key_need_no_signature_and_their_chain_is_signed(tmp_path, signers):
    paths = write_sample_spool(tmp_path, sample_events(30), events_per_segment=10)
    last = paths[-1].with_suffix(SEAL_SUFFIX)
    last.write_bytes(signers[0].signed(Seal.read(last)).to_json())
    keys = PublicKeys([signers[0].public_pem])
    assert read_folder(paths[0].parent, keys=keys).breaks == []
    attack = Attack(paths[0].parent, random.Random(1))
    attack.paths = paths[:1]
    attack.drop_a_row()
    reseal(attack, None)
    assert f"{paths[2].with_suffix('')}: the signature of its seal is wrong: the seal was changed" in (
        read_folder(paths[0].parent, keys=keys).breaks
    )


def test_the_digits_of_a_seal_from_before_the_key_cannot_move_to_another_value(tmp_path, signers):
    """Without `lines_sha256`, a lake only counts the rows of a segment."""
    paths = write_sample_spool(tmp_path, sample_events(30), events_per_segment=10)
    last, first = paths[-1].with_suffix(SEAL_SUFFIX), paths[0].with_suffix(SEAL_SUFFIX)
    last.write_bytes(signers[0].signed(Seal.read(last)).to_json())
    seal = Seal.read(first)
    forged = replace(seal, sha256=seal.sha256 + seal.lines_sha256, lines_sha256="")
    found = NodeFolder("node-1", "")
    chain = SealChain(found, PublicKeys([signers[0].public_pem]))
    for path in paths:
        seal = forged if path is paths[0] else Seal.read(path.with_suffix(SEAL_SUFFIX))
        chain.add(path.stem, path.stem, seal)
    chain.end()
    assert found.breaks == [f"{paths[0].stem}: its seal was changed: a value is no SHA-256"]


@pytest.mark.parametrize("day", [False, True])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_was_added_beside_a_segment_is_named(tmp_path, signers, suffix, day):
    folder = spool_of(tmp_path, signers[0])
    path = sealed_segments(folder)[1]
    data = path.read_bytes().replace(b'"outcome":"ok"', b'"outcome":"no"')
    forged = (path.parent if day else folder) / f"{path.name}{suffix}"
    if forged == path:
        path.rename(folder / path.name)
    forged.write_bytes(compress(data, "gzip") if suffix else data)
    found = read_folder(folder, keys=PublicKeys([signers[0].public_pem]))
    assert found.breaks == [f"{forged} was changed: its SHA-256 differs from its seal"]


def test_malformed_gaps_in_an_open_segment_excuse_no_missing_events(tmp_path):
    write_sample_spool(tmp_path, sample_events(10))
    gap = {
        "kind": "audit_gap",
        "node": "node-1",
        "boot": "b",
        "action": "dropped",
        "gap_first_seq": 0,
        "gap_last_seq": 9,
    }
    others = [{name: value for name, value in gap.items() if name != left_out} for left_out in ("node", "boot", "kind")]
    others += [gap | {name: None} for name in ("node", "boot", "action", "gap_first_seq")]
    others += [gap | {"gap_last_seq": "9"}, gap | {"gap_last_seq": 1 << 63}, gap | {"gap_boot": 1}]
    lines = [
        *map(json.dumps, [*others, gap]),
        '["audit_gap"]',
        '"audit_gap"',
        "audit_gap",
        '{"audit_gap":' + "[" * 100_000,
    ]
    (tmp_path / "node-1" / f"{LATER_BOOT}-{0:020d}.open").write_text("\n".join([*lines, json.dumps(gap)]))
    assert read_folder(tmp_path / "node-1").gaps == [gap]


def test_a_key_on_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(signatures, "PLATFORM", replace(PLATFORM, sync=full))
        with pytest.raises(OSError, match="No space left"):
            write_key(tmp_path / "key.pem")
    assert write_key(tmp_path / "key.pem") == SealSigner(tmp_path / "key.pem").key_id


# ---- the server


def test_the_server_signs_each_seal_also_after_a_crash_and_at_the_end(tmp_path):
    write_key(tmp_path / "key")
    signer = SealSigner(tmp_path / "key")
    writer = Writer(tmp_path / "spool" / "node-1", segment_age_ms=10, signing_key=tmp_path / "key")
    writer.start()
    writer.write(2)
    writer.clock.advance_ms(10)
    writer.tick()
    writer.write(1)
    writer.die()
    writer.start("00000001")
    writer.write(1)
    writer.spool.close()
    assert [(seal.key_id == signer.key_id, seal.final) for seal in seals(writer.folder)] == [
        (True, False), (True, False), (True, True),
    ]  # fmt: skip
    (public,) = writer.folder.glob("*.pub")
    keys = PublicKeys([public.read_bytes()])
    found = read_folder(writer.folder, keys=keys)
    assert (found.breaks, found.signed) == ([], 3)


def test_the_lake_keeps_the_first_keys_and_names_further_ones(tmp_path, signers):
    own, foreign = signers
    lake, folder = Lake(tmp_path / "lake"), spool_of(tmp_path / "spool", own)
    said = []
    for signer in (own, foreign):
        (folder / f"{signer.key_id}.pub").write_bytes(signer.public_pem)
        remember_keys(tmp_path / "spool", lake, said.append)
        remember_keys(tmp_path / "spool", lake, said.append)
    (folder / "wrong.pub").write_bytes(b"no key")
    remember_keys(tmp_path / "spool", lake, said.append)
    assert [line.partition(";")[0] for line in said[:2]] == [
        f"seals of node-1 are signed with the key: {own.key_id}",
        f"seals of node-1 are signed with another key than before: {foreign.key_id}",
    ]
    assert said[2:] == [f"{folder / 'wrong.pub'}: no public key in PEM"]
    assert read_folder(folder, keys=keys_of(lake, folder.name)).breaks == []


def test_an_invalid_key_and_one_that_others_can_read_are_refused(tmp_path, capsys):
    path = tmp_path / "key"
    assert main(["key", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == f"{path}: the key {SealSigner(path).key_id}\n"
    assert main(["key", str(path)]) == 2
    assert "File exists" in capsys.readouterr().err
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="its mode is 0640, and must be 0600"):
        SealSigner(path)
    path.chmod(0o600)
    path.write_text("none")
    with pytest.raises(KeyFileError, match="is no private key in PEM"):
        SealSigner(path)
    with pytest.raises(KeyFileError, match="No such file"):
        SealSigner(tmp_path / "nowhere")
