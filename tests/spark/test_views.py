"""The views render events as the plain functions do, over the same events."""

import json

from klamm_spark.events.renderers import RENDERERS
from klamm_spark.lake.views import register_views
from tests.audit_samples import write_sample_spool
from tests.spark.conftest import settings_of
from tests.unit.audit.test_renderers import VECTORS


def test_views_give_the_stored_renderings(spark, ship, tmp_path):
    from klamm_spark.lake.layout import Lake

    events = sorted((vector["event"] for vector in VECTORS), key=lambda event: event["seq"])
    write_sample_spool(tmp_path / "spool", events)
    ship(tmp_path / "spool", settings_of(tmp_path / "lake"))
    register_views(spark, Lake(tmp_path / "lake"))
    for name in RENDERERS:
        found = {row.event_id: json.loads(row.value) for row in spark.table(f"klamm_{name}").collect()}
        wanted = {event["event_id"]: rendered for event in events if (rendered := RENDERERS[name](event)) is not None}
        assert found == wanted, name
