"""The streaming aggregates against what plain Python counts."""

import pytest

from tests.spark.conftest import settings_of
from tests.spark.counting import expected, found


@pytest.fixture(scope="module")
def wanted(shipped):
    return expected(shipped.events, shipped.pipeline.settings)


def rows_of(spark, lake, settings, name):
    """The rows of a table or a view."""
    from klamm_spark.lake.tables import VIEWS, read_view

    return (read_view(spark, lake, settings, name) if name in VIEWS else lake.read(spark, lake.table(name))).collect()


@pytest.mark.parametrize(
    "name",
    [
        "traffic_per_minute",
        "hot_clients",
        "denials",
        "refused_per_minute",
        "brute_force",
        "success_after_failures",
        "first_seen",
    ],
)
def test_a_table_has_what_plain_python_counts(spark, shipped, wanted, name):
    rows = rows_of(spark, shipped.lake, shipped.pipeline.settings, name)
    assert found(name, rows) == wanted[name]
    assert rows


def test_denials_name_the_resource(spark, shipped):
    rows = shipped.lake.read(spark, shipped.lake.table("denials")).collect()
    assert all(row.resource_name.startswith("orders-") for row in rows if row.api_name != "Heartbeat")


@pytest.mark.parametrize("name", ["traffic_per_minute", "first_seen"])
def test_a_second_run_adds_what_is_new_and_nothing_twice(spark, ship, tmp_path, name):
    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.tables import TABLES, start_table
    from tests.audit_samples import sample_events, write_sample_spool

    settings = settings_of(tmp_path / "lake", aggregates=False)
    lake = Lake(settings.lake, "parquet")
    (table,) = (table for table in TABLES if table.name == name)
    events = list(sample_events(600, step_us=1_000_000))
    for part in (events[:300], events[300:]):
        write_sample_spool(tmp_path / "spool", part)
        ship(tmp_path / "spool", settings)
        start_table(spark, lake, settings, table, once=True).awaitTermination()
    keys = {
        "traffic_per_minute": [*("minute", "listener", "principal", "client_id", "client_address", "api_name")]
    }.get(name, ["what", "value"])
    rows = lake.read(spark, lake.table(name)).select(*keys)
    assert rows.count() == rows.distinct().count() > 0
    if name == "traffic_per_minute":
        assert rows.select("minute").distinct().count() == 10
