"""Tests of lineage: which client reads and writes which topic, in the form of OpenLineage's own client."""

import json
import sys
from uuid import UUID

import pytest

from klamm import __version__
from klamm_spark.cli import main
from klamm_spark.events.lineage import open_lineage
from tests.audit_samples import sample_events, write_sample_spool

SAMPLES = list(sample_events(400))
MOVED = [
    one for one in SAMPLES if one.get("api_name") in ("Fetch", "Produce") and one["outcome"] in ("ok", "throttled")
]


def written_by_the_client(event, lineage):
    """Return an event as OpenLineage's client writes it. The client checks the run's id, times and URIs."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
    from openlineage.client.facet_v2 import (
        input_statistics_input_dataset,
        job_type_job,
        output_statistics_output_dataset,
    )
    from openlineage.client.serde import Serde

    set_producer(f"urn:klamm:{__version__}")
    job_type = job_type_job.JobTypeJobFacet(processingType="STREAMING", integration="KAFKA", jobType="CLIENT")
    inputs, outputs = [], []
    for one in event["resources"]:
        about = {"rowCount": one.get("records"), "size": one["bytes"]}
        where = {"namespace": "kafka://here:1", "name": one["name"]}
        if event["api_name"] == "Fetch":
            statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(**about)
            inputs.append(InputDataset(**where, inputFacets={"inputStatistics": statistics}))
        else:
            statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(**about)
            outputs.append(OutputDataset(**where, outputFacets={"outputStatistics": statistics}))
    name = f"{event['principal']}/{event['client_id']}"
    written = RunEvent(
        eventTime=lineage["eventTime"],
        eventType=RunState.RUNNING,
        run=Run(runId=lineage["run"]["runId"]),
        job=Job(namespace="kafka://here:1", name=name, facets={"jobType": job_type}),
        inputs=inputs,
        outputs=outputs,
    )
    return json.loads(Serde.to_json(written))


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="the client has no wheels for it")
def test_lineage_equals_the_output_of_openlineages_client():
    assert {one["api_name"] for one in MOVED} == {"Fetch", "Produce"}
    for event in MOVED:
        found = open_lineage(event, "kafka://here:1")
        assert found == written_by_the_client(event, found)


def test_only_requests_that_moved_records_are_lineage():
    event = MOVED[0]
    assert open_lineage(event) is not None
    for change in (
        {"outcome": "denied"},
        {"api_name": "Metadata"},
        {"kind": "connection"},
        {"resources": []},
        {"resources": [{**event["resources"][0], "bytes": 0}]},
        {"resources": [{**event["resources"][0], "type": "GROUP"}]},
    ):
        assert open_lineage({**event, **change}) is None, change


def test_a_client_is_one_job_and_a_start_of_the_server_one_run():
    event = {**MOVED[0], "connection_id": "10.0.0.1:9092-10.0.0.9:4711-0"}
    first, again = open_lineage(event), open_lineage({**event, "seq": 9, "time_us": event["time_us"] + 1})
    assert first["run"] == again["run"]
    assert UUID(first["run"]["runId"]).version == 5
    assert first["job"]["namespace"] == "kafka://10.0.0.1:9092"
    others = ({"boot": "b"}, {"client_id": "other"}, {"principal": "User:other"}, {"node": "n"})
    runs = {open_lineage({**event, **other})["run"]["runId"] for other in others}
    assert len(runs | {first["run"]["runId"]}) == 5
    assert open_lineage({**event, "client_id": None})["job"]["name"] == event["principal"]


@pytest.mark.parametrize("namespace", ["", "kafka://broker:9092"])
def test_export_writes_a_line_for_each(tmp_path, capsys, namespace):
    write_sample_spool(tmp_path / "spool", SAMPLES)
    assert (
        main(["export", "--spool", str(tmp_path / "spool"), "--format", "openlineage", "--namespace", namespace]) == 0
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [open_lineage(event, namespace) for event in MOVED]
