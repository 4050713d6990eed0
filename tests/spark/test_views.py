"""The views render events as the plain functions do, over the same events."""

import json

from klamm_spark.events.renderers import RENDERERS
from klamm_spark.lake.views import register_views
from tests.spark.conftest import settings_of
from tests.unit.audit.test_renderers import VECTORS


def test_views_give_the_stored_renderings(spark, ship, tmp_path):
    from klamm_spark.lake.layout import Lake

    folder = tmp_path / "spool" / "node-1"
    folder.mkdir(parents=True)
    events = [vector["event"] for vector in VECTORS]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "019b8ff8d000c0ffee00-00000000000000000000.jsonl").write_text(lines)
    ship(tmp_path / "spool", settings_of(tmp_path / "lake"))
    register_views(spark, Lake(tmp_path / "lake"))
    for name in RENDERERS:
        found = {row.event_id: json.loads(row.value) for row in spark.table(f"klamm_{name}").collect()}
        wanted = {event["event_id"]: rendered for event in events if (rendered := RENDERERS[name](event)) is not None}
        assert found == wanted, name
