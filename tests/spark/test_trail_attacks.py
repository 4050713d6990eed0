"""Attacks on all parts of a lake: `verify` with one pinned key and one cosigned checkpoint names each of them.

Some attackers have the keys of server and log, or root on both, or put an older copy of everything back.
"""

import json
import random
import shutil
from collections import Counter
from contextlib import closing

import pytest

from klamm_spark.errors import LakeError
from klamm_spark.lake import verify
from klamm_spark.lake.seal_log import TransparencyLog
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.spool.signatures import KeyFileError
from tests.spark.lake_attacks import COLUMNS, WAYS, LakeAttack, change_commits, live_files
from tests.spark.sealed_lake import FIRST, digests_now, new_signer, sealed_lake
from tests.trail_attacks import OF_ROWS, TrailAttack, Way, drawn, files_by_kind, not_named, ways
from tests.unit.audit.log_attacks import FORKED, ROLLED_BACK

COVERS = {
    "": set(),
    "seals fit": {"the signature of its seal is wrong"},
    "signed": {"the lake has another seal"},
    "all signed": {FORKED, ROLLED_BACK},
}
"""Seals that an attacker makes fit to the rows, and the finding that names them if the rows do not fit."""
QUESTIONS = (
    "true",
    "kind = 'request'",
    "principal = 'User:user-3'",
    f"event_id = 'node-1/{FIRST}/17'",
    "seq between 20 and 25",
    "time_us < 1767225600030000",
    "client_address like '10.0.1.%'",
)
"""Conditions of queries whose answers may not change unnoticed."""


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    return new_signer(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def sealed(signer, tmp_path_factory):
    return sealed_lake(signer, tmp_path_factory.mktemp("sealed"))


class LakeFiles(TrailAttack):
    """Files of a lake, together with the answers to queries about it."""

    def content(self, kind):
        if kind not in OF_ROWS:
            return super().content(kind)
        try:
            digests = Counter(digest for each in digests_now(self.lake).values() for digest in each)
            with closing(DuckDbViews(self.lake, Period())) as views:
                return digests, [
                    views.query(f"SELECT count(*) FROM events WHERE {question}").rows[0][0] for question in QUESTIONS
                ]
        except (LakeError, OSError, ValueError):
            return "nothing"

    def name_a_file(self, kind, *paths):
        super().name_a_file(kind, *paths)
        if kind in OF_ROWS:
            # `LakeAttack` checks the events. Here any of them may be missing.
            self.touched |= {row.segment for row in self.seals()} | {"_delta_log", "cannot be read"}


def ways_of_rows(signer):
    def act(attack, name, cover):
        rows = LakeAttack(attack.lake, attack.choose)
        rows.touched = attack.touched
        if name in COLUMNS:
            rows.change_a_column(name)
        else:
            getattr(rows, name)()
        if cover:
            rows.make_seals_fit(digests_now(attack.lake), signer if "signed" in cover else None)
            # Rows without a seal are also named if the seals fit.
            attack.touched |= COVERS[cover]
        if cover == "all signed":
            shutil.rmtree(attack.folder)
            TransparencyLog(attack.folder, attack.log_signer, [], lambda line: None).catch_up(attack.lake)

    for name in (*WAYS, *COLUMNS):
        for cover in COVERS if "seal" not in name else ("",):
            yield Way(f"{name} {cover}", lambda attack, name=name, cover=cover: act(attack, name, cover), True)


def said_of(sealed):
    said = []
    try:
        code = verify.run(None, sealed.pipeline, say=said.append, checkpoints=[sealed.kept])
    except (KeyFileError, LakeError) as error:
        return 2, [str(error)]
    return code, said


@pytest.mark.parametrize("tries", [5, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(10_800)])])
def test_random_attacks_on_the_lake_are_found_and_named(sealed, signer, seed, tries):
    choose, made = random.Random(seed), Counter()

    def start():
        sealed.restore()
        return LakeFiles(sealed.lake, sealed.older, (signer, sealed.log_signer), choose, pinned=6)

    start()
    assert said_of(sealed)[0] == 0
    for way, attack in drawn(choose, tries, start, [*ways(), *ways_of_rows(signer)]):
        code, said = said_of(sealed)
        assert code, way
        assert not_named(attack.touched, said) == {}, way
        made[code] += 1
    start()
    assert made[verify.EXIT_FOUND] > tries * 0.9, made


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_attack_is_found_and_named(sealed, seed, way):
    sealed.restore()
    attack = LakeAttack(sealed.lake, random.Random(seed))
    getattr(attack, way)()
    code, said = said_of(sealed)
    assert code == verify.EXIT_FOUND, said
    assert not_named(attack.touched, said) == {}
    sealed.restore()


def test_every_file_of_a_lake_has_attacks(sealed):
    sealed.restore()
    found = files_by_kind(sealed.lake.root)
    assert {kind for kind, files in found.items() if not files} == {"forgotten"}


def forge_statistics(add):
    """State in a file's commit that the file has no rows that queries ask for."""
    statistics = json.loads(add["stats"])
    for end in ("minValues", "maxValues"):
        statistics.setdefault(end, {}).update(principal="User:zzz", kind="zzz", seq=1 << 40)
    add["stats"] = json.dumps(statistics | {"numRecords": 1})


def forge_footer(path):
    """State the same in the footer of the file."""
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert b"User:" in data[at:]
    path.write_bytes(data[:at] + data[at:].replace(b"User:", b"Zzzz:"))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_forged_statistics_hide_no_event(sealed, signer, seed):
    sealed.restore()
    attack = LakeFiles(sealed.lake, sealed.older, (signer, sealed.log_signer), random.Random(seed), pinned=6)
    digests, counts = attack.content("rows")
    assert counts[0] > max(counts[1:])
    assert min(counts) > 0
    for name in live_files(sealed.lake):
        change_commits(sealed.lake, sealed.lake.events / name, forge_statistics)
        forge_footer(sealed.lake.events / name)
    assert attack.content("rows") == (digests, counts)
    sealed.restore()


@pytest.mark.parametrize("place", ["commit", "footer"])
def test_forged_statistics_are_named(sealed, seed, place):
    sealed.restore()
    path = sealed.lake.events / random.Random(seed).choice(sorted(live_files(sealed.lake)))
    if place == "commit":
        change_commits(sealed.lake, path, forge_statistics)
    else:
        forge_footer(path)
    code, said = said_of(sealed)
    named = [line for line in said if line.startswith(f"broken chain: {path}: its {place} is wrong about ")]
    assert (code, bool(named)) == (verify.EXIT_FOUND, True), said
    sealed.restore()
