"""Functions that read the events of a spool on disk, from all streams of a server."""

import json

from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import ADMINISTRATION, REQUESTS, SECURITY, folder_name, open_segments, sealed_segments


def stream_folders(spool, node="node-1"):
    """Return the existing folders of a node's streams. The stream of logins comes first, because clients log in
    first.
    """
    folders = [spool / folder_name(node, stream) for stream in (SECURITY, ADMINISTRATION, REQUESTS)]
    return [folder for folder in folders if folder.is_dir()]


def lines_of(spool, node="node-1", *, unsealed=False):
    """Return the lines of all streams."""
    paths = [path for folder in stream_folders(spool, node) for path in sealed_segments(folder)]
    if unsealed:
        paths += [path for folder in stream_folders(spool, node) for path in open_segments(folder)]
    return [line for path in paths for line in read_segment(path).splitlines() if line.endswith(b"}")]


def read_segment(path):
    """Return the lines of a segment, compressed or not."""
    return decompress(path.read_bytes(), path.suffix)


def events_of(spool, node="node-1", *, unsealed=False):
    """Return the events of all streams, ordered by time."""
    events = [json.loads(line) for line in lines_of(spool, node, unsealed=unsealed)]
    return sorted(events, key=lambda event: event["time_us"])


def assert_numbered(events):
    """Assert that the numbers of each boot have no gap."""
    for boot in {event["boot"] for event in events}:
        numbers = sorted(event["seq"] for event in events if event["boot"] == boot)
        assert numbers == list(range(len(numbers))), boot
