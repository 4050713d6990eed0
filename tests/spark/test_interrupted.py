"""`verify` and the report say that the outcome of a change is unknown if a kill has interrupted the change.

The seals are signed.
"""

from klamm_spark.settings.spark import Pipeline
from tests.peers.interrupted_changes import leave_interrupted
from tests.spark.conftest import settings_of
from tests.spark.sessions import table_of


def test_a_change_with_an_unknown_outcome_is_named(ship, tmp_path):
    from klamm_spark.lake import verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.report import command as report

    leave_interrupted(tmp_path)
    settings = settings_of(tmp_path / "lake")
    (key,) = tmp_path.glob("spool/node-1/*.pub")
    assert any(
        f"seals of node-1 are signed with the key: {key.stem}" in line for line in ship(tmp_path / "spool", settings)
    )
    said = []
    assert verify.run(None, Pipeline(tmp_path / "spool", settings), say=said.append) == 0
    checked = [
        line for line in said if "signatures of seals were checked: " in line and line.endswith(f" by {key.stem}")
    ]
    assert len(checked) == 2, "one for each stream that has events"
    rows = table_of(Lake(tmp_path / "lake")).select(["action", "kept_line"]).to_pylist()
    kept = [row["action"] for row in rows if row["kept_line"] is not None]
    assert len(rows) > 2 * len(kept)
    assert set(kept) == {"interrupted"}, "columns give lines back"
    alone: list[str] = []
    assert verify.run(None, Pipeline(None, settings), say=alone.append) == 0, alone
    unknown = [line for line in said if line.startswith("outcome unknown: ")]
    for line, topic in zip(unknown, ("done", "stuck"), strict=True):
        assert f"CreateTopics of TOPIC {topic} by User:ANONYMOUS from 127.0.0.1" in line
    tables = report.build(Lake(tmp_path / "lake")).tables
    assert [row[4] for row in tables["interrupted"].rows] == ["TOPIC done", "TOPIC stuck"]
    assert tables["interrupted"].marked == {0, 1}
    assert [row[6] for row in tables["changes"].rows] == ["unknown", "unknown"]
