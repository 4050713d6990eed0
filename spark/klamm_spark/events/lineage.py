"""Lineage in OpenLineage 2.0.2: an event for each Produce and Fetch of records, with the topics and the client.

Pure functions, for the command that prints events in other formats.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from klamm import __version__
from klamm_spark.events.event import REQUEST
from klamm_spark.events.renderers import timestamp

_PRODUCER: Final = f"urn:klamm:{__version__}"
_SPECIFICATION: Final = "https://openlineage.io/spec"
_RUN_EVENT: Final = f"{_SPECIFICATION}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_DIRECTIONS: Final = {
    "Fetch": ("inputs", "inputFacets", "inputStatistics", "1-0-0/InputStatisticsInputDatasetFacet"),
    "Produce": ("outputs", "outputFacets", "outputStatistics", "1-0-2/OutputStatisticsOutputDatasetFacet"),
}
_JOB_TYPE: Final = {"processingType": "STREAMING", "integration": "KAFKA", "jobType": "CLIENT"}


def _facet(schema: str, **values: Any) -> dict[str, Any]:
    url = f"{_SPECIFICATION}/facets/{schema}.json#/$defs/{schema.partition('/')[2]}"
    known = {name: value for name, value in values.items() if value is not None}
    return {"_producer": _PRODUCER, "_schemaURL": url, **known}


def open_lineage(event: Mapping[str, Any], namespace: str = "") -> dict[str, Any] | None:
    """Return the OpenLineage event of a request, or None if it read or wrote no records.

    The job is a principal with a client id, and one run of the job lasts from a start of the server to its stop.
    `namespace` is for the topics and the job. By default it is made of the address at which the client reached the
    server.
    """
    direction = _DIRECTIONS.get(event.get("api_name", "")) if event["kind"] == REQUEST else None
    topics = [one for one in event.get("resources") or () if one["type"] == "TOPIC" and one.get("bytes")]
    if direction is None or event["outcome"] not in ("ok", "throttled") or not topics:
        return None
    side, facets, name, schema = direction
    namespace = namespace or f"kafka://{event['connection_id'].partition('-')[0]}"
    job = "/".join(filter(None, (event.get("principal"), event.get("client_id"))))
    run = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join((namespace, event["node"], event["boot"], job)))
    return {
        "eventTime": timestamp(event),
        "eventType": "RUNNING",
        "producer": _PRODUCER,
        "schemaURL": _RUN_EVENT,
        "run": {"runId": str(run), "facets": {}},
        "job": {
            "namespace": namespace,
            "name": job,
            "facets": {"jobType": _facet("2-0-4/JobTypeJobFacet", **_JOB_TYPE)},
        },
        "inputs": [],
        "outputs": [],
        side: [
            {
                "namespace": namespace,
                "name": one["name"],
                "facets": {},
                facets: {name: _facet(schema, rowCount=one.get("records"), size=one["bytes"])},
            }
            for one in topics
        ],
    }
