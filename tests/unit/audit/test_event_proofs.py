"""Tests of proofs that one event is in the log: they are small, prove nothing else, and need no klamm to check."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm_spark.cli import main
from klamm_spark.lake.log_entries import Entry, check_event, event_proof, lines_root
from klamm_spark.spool.layout import SegmentName, line_digest
from klamm_spark.tlog.merkle import Tree, leaf_hash, path_root, tree_of
from klamm_spark.tlog.notes import WITNESS_KEY, Checkpoint, NoteSigner
from tests.unit.audit.logged_lake import NOW_S, ORIGIN, WITNESS, LoggedLake, signer_in

pytest.importorskip("pyarrow")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "audit" / "evidence.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = LoggedLake(tmp_path_factory.mktemp("proven"))
    place.paths = place.write(2, events=21)
    place.ship(place.paths)
    place.early = place.keep("early")
    place.grow(3)
    yield place
    place.witness.close()


def keys_of(place):
    return [place.witness_key, place.log_signer.key]


def printed(capsys, *arguments):
    capsys.readouterr()
    code = main([str(each) for each in arguments])
    return code, capsys.readouterr()


def proof_of(place, capsys, line, name="proof"):
    """Return the file with the output of `klamm audit prove`."""
    (place.folder / "line").write_bytes(line + b"\n")
    code, out = printed(capsys, "prove", place.lake.root, "--line", place.folder / "line")
    assert code == 0, out.err
    (place.folder / name).write_text(out.out)
    return place.folder / name


def test_each_event_has_a_proof_that_proves_no_other_event(place, capsys):
    lines = place.paths[1].read_bytes().splitlines()
    proofs = [proof_of(place, capsys, line).read_bytes() for line in lines]
    for line, proof in zip(lines, proofs, strict=True):
        proven = check_event(line, proof, keys_of(place))
        assert (proven.entry.segment, proven.times_s) == (place.paths[1].stem, [NOW_S])
        assert proven.checkpoint.size == 5
        for other in lines:
            if other != line:
                with pytest.raises(ValueError, match="of another line"):
                    check_event(other, proof, keys_of(place))


def test_a_proof_with_any_change_proves_nothing(place, capsys, seed):
    choose = random.Random(seed)
    line = place.paths[0].read_bytes().splitlines()[7]
    proof = proof_of(place, capsys, line).read_bytes()
    for _ in range(300):
        changed = bytearray(proof)
        at = choose.randrange(len(changed))
        changed[at : at + 1] = choose.choice([b"", bytes([changed[at] ^ 1 << choose.randrange(8)]), b"\n", b"A"])
        if bytes(changed) != proof:
            with pytest.raises(ValueError, match=r"."):
                check_event(line, bytes(changed), keys_of(place))
    check_event(line, proof, keys_of(place))


def test_a_proof_without_the_signature_of_a_named_key_proves_nothing(place, capsys):
    line = place.paths[0].read_bytes().splitlines()[0]
    proof = proof_of(place, capsys, line).read_bytes()
    other = place.witness_key._replace(name="example.com/other")
    for keys in ([other], [place.witness_key, other]):
        with pytest.raises(ValueError, match=r"example.com/other .* has not signed"):
            check_event(line, proof, keys)
    with pytest.raises(ValueError, match="no key to check it by"):
        check_event(line, proof, [])


def test_a_proof_from_a_large_log_has_at_most_2_kib(place):
    """The segment has 64 MiB, and the log has three streams that sealed each minute for a year."""
    choose = random.Random(1)
    lines = [choose.randbytes(8).hex().encode() for _ in range(74_000)]
    digests = "".join(map(line_digest, lines))
    segment = SegmentName("019b8ff8d000c0ffee00s", 123_456_789).stem
    entry = Entry("broker-10", segment, 123_530_788, len(lines), lines_root(digests), "ab" * 32)
    size, index = 3 * 60 * 24 * 365, 1_234_567
    tree = Tree(lambda level, at: leaf_hash(f"{level} {at}".encode()))
    root = path_root(leaf_hash(entry.to_bytes()), index, size, tree.inclusion(index, size))
    checkpoint = Checkpoint(ORIGIN, size, root)
    checkpoint = checkpoint.signed(place.log_signer.line(checkpoint.text))
    witness = NoteSigner(signer_in(place.folder / "keys", "witness"), WITNESS, WITNESS_KEY)
    checkpoint = checkpoint.signed(witness.line(checkpoint.text, NOW_S))
    proof = event_proof(entry, 54_321, digests, tree, index, checkpoint).encode()
    assert check_event(lines[54_321], proof, keys_of(place)).entry == entry
    assert len(proof) <= 2048


def test_a_proof_can_be_checked_without_the_lake_and_its_readers(place, capsys):
    """The command can do it, and so can its module alone, which imports neither Spark nor Arrow."""
    line = place.paths[0].read_bytes().splitlines()[3]
    proof = proof_of(place, capsys, line)
    (place.folder / "line").write_bytes(line + b"\n")
    vkeys = [part for key in keys_of(place) for part in ("--vkey", key)]
    code, out = printed(capsys, "check", proof, "--line", place.folder / "line", *vkeys)
    assert code == 0
    assert out.out.startswith(f"the event is in {place.paths[0].stem} of node-1 (events 0 to 20): {ORIGIN}, 5 entries")
    assert out.out.endswith("cosigned 2027-01-15T08:00:00+00:00\n")
    (place.folder / "line").write_bytes(line.replace(b"ok", b"OK"))
    code, out = printed(capsys, "check", proof, "--line", place.folder / "line", *vkeys)
    assert (code, out.err) == (1, "not proven: the proof is of another line\n")
    code, out = printed(capsys, "check", place.early, "--line", place.folder / "line", *vkeys)
    assert (code, out.err) == (2, "klamm audit check: it is no proof of an event\n")
    heavy = "{'pyspark', 'pyarrow', 'pandas', 'duckdb'}"
    script = f"import sys, klamm_spark.lake.log_entries\nprint({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "set()\n", done.stderr


def test_the_page_for_auditors_checks_proofs_without_klamm(place, capsys, seed):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (script,) = (block for block in blocks if "hashlib" in block)
    assert "klamm" not in script
    line = place.paths[1].read_bytes().splitlines()[17]
    proof = proof_of(place, capsys, line)
    whole, choose = proof.read_bytes(), random.Random(seed)
    signature = whole.rindex("\N{EM DASH} example.com/witness".encode())

    def run():
        files = (str(proof), str(place.folder / "line"), str(place.witness_key))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["check.py", *files])
            exec(compile(script, "check.py", "exec"), {})
        return capsys.readouterr().out

    assert run() == f"node-1 {place.paths[1].stem}: cosigned by {WITNESS} at {NOW_S}\n"
    for _ in range(100):
        changed = bytearray(whole)
        # The check reads neither the first line nor the log's signature.
        at = choose.choice([*range(30, whole.index(b"\n\n")), *range(signature + 24, len(whole) - 3)])
        changed[at] ^= 1 << choose.randrange(7)
        proof.write_bytes(changed)
        with pytest.raises((Exception, SystemExit)):
            run()
        capsys.readouterr()


def test_a_log_can_prove_that_it_has_only_grown(place, capsys):
    code, out = printed(capsys, "prove", place.lake.root, "--since", place.early)
    assert code == 0
    proof = place.folder / "grown"
    proof.write_text(out.out)
    vkeys = ["--vkey", place.witness_key]
    code, out = printed(capsys, "check", proof, "--since", place.early, *vkeys)
    assert (code, out.out.partition(":")[0]) == (0, "the log has only grown since it had 2 entries")
    early = Checkpoint.parse(place.early.read_bytes())
    forged = place.folder / "forged"
    forged.write_text(str(early).replace("\n2\n", "\n3\n"))
    code, out = printed(capsys, "check", proof, "--since", forged, *vkeys)
    assert code == 1
    assert "not proven: the proof" in out.err
    # A witness requires the same. Anyone can ask a witness.
    assert proof.read_text().startswith("old 2\n")


def test_an_event_outside_the_log_has_no_proof(place, capsys):
    event = json.loads(place.paths[0].read_bytes().splitlines()[0])
    for line, reason in (
        (json.dumps(event | {"principal": "User:other"}), "the line is not one of"),
        (json.dumps(event | {"boot": "019b8ff8d001c0ffee00"}), "no entry of the log has"),
        (json.dumps([1]), "the line is no event"),
        ("{", "Expecting"),
    ):
        (place.folder / "line").write_text(line)
        code, out = printed(capsys, "prove", place.lake.root, "--line", place.folder / "line")
        assert code == 2
        assert reason in out.err, out.err


def test_the_tree_of_lines_has_groups_of_eight():
    """docs/audit/evidence.md describes this tree for auditors."""
    import hashlib

    digests = [line_digest(bytes([number])) for number in range(19)]

    def short(data):
        return hashlib.sha256(data).digest()[:16]

    groups = [bytes.fromhex("".join(digests[at : at + 8])) for at in (0, 8, 16)]
    one, two, three = (short(b"\x00" + group) for group in groups)
    assert lines_root("".join(digests)) == short(b"\x01" + short(b"\x01" + one + two) + three).hex()
    assert tree_of([one]).root(1) == one
