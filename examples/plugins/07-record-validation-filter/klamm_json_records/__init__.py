"""klamm-json-records: the filter `json_records`.

klamm imports this module at every start, so it holds the hook alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_request_filters() -> Iterator[Provider]:
    """Yield the names that a configuration can use, and the place of their code."""
    yield Provider(
        "json_records",
        factory="klamm_json_records.filter:JsonRecords",
        settings="klamm_json_records.filter:JsonRecordsSettings",
        summary="lets only JSON objects with certain keys be produced",
    )
