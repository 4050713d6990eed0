"""Spark's own Kafka source reads the events that klamm writes to a topic."""

import json
import subprocess
import sys

import pytest

from klamm.testing import EmbeddedServer
from tests.audit_spool import events_of
from tests.unit.audit.test_audit_topic import TOPIC, settings_of

PROGRAM = """
import json, sys
import pyspark
from klamm_spark.spark.session import open_session
from klamm_spark.spool.event_lines import ROW, EventLines
from klamm_spark.settings.spark import SparkSettings
from pyspark.sql.pandas.types import from_arrow_schema

def events(batches):
    lines = EventLines()
    for batch in batches:
        yield from lines.rows_of(b"".join(value + b"\\n" for value in batch[0].to_pylist())).to_batches()

package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
settings = SparkSettings(lake=sys.argv[2], driver_memory="1g", conf={"spark.jars.packages": package})
spark = open_session(settings, "klamm tests")
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "__audit", "startingOffsets": "earliest"}
stream = spark.readStream.format("kafka").options(**options).load().select("value")
rows = stream.mapInArrow(events, from_arrow_schema(ROW))
writer = rows.writeStream.format("memory").queryName("found").trigger(availableNow=True)
writer.option("checkpointLocation", sys.argv[2] + "/checkpoint").start().awaitTermination()
found = spark.sql("SELECT event_id, api_name FROM found WHERE bad_line IS NULL").collect()
print("FOUND", json.dumps([row.asDict() for row in found]))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sparks_kafka_source_reads_the_topic(tmp_path):
    spool = tmp_path / "spool"
    with EmbeddedServer(settings_of(spool)) as server:
        server.create_topic("orders")
        server.produce("orders", b"one", b"two")
        server.wait_until(lambda: TOPIC in server.admin.topics(), "the topic of the audit")
        server.wait_until(
            lambda: any(b'"api_name":"Produce"' in (one.value or b"") for one in server.consume(TOPIC)),
            "the event of the Produce request",
        )
        arguments = [sys.executable, "-c", PROGRAM, server.bootstrap, str(tmp_path / "work")]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=800, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    found = {event["event_id"]: event["api_name"] for event in json.loads(lines[0].removeprefix("FOUND "))}
    written = {event["event_id"]: event.get("api_name") for event in events_of(spool, unsealed=True)}
    assert "Produce" in found.values()
    assert found.items() <= written.items()
