"""The events of a spool on disk, of all of a server's streams."""

import json

from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import ADMINISTRATION, REQUESTS, SECURITY, folder_name, open_segments, sealed_segments


def stream_folders(spool, node="node-1"):
    """The folders of a node that exist. A client logs in before it does something."""
    folders = [spool / folder_name(node, stream) for stream in (SECURITY, ADMINISTRATION, REQUESTS)]
    return [folder for folder in folders if folder.is_dir()]


def lines_of(spool, node="node-1", *, unsealed=False):
    """The lines of every stream."""
    paths = [path for folder in stream_folders(spool, node) for path in sealed_segments(folder)]
    if unsealed:
        paths += [path for folder in stream_folders(spool, node) for path in open_segments(folder)]
    return [line for path in paths for line in read_segment(path).splitlines() if line.endswith(b"}")]


def read_segment(path):
    """The lines of a segment, compressed or not."""
    return decompress(path.read_bytes(), path.suffix)


def events_of(spool, node="node-1", *, unsealed=False):
    """The events of every stream, by time."""
    events = [json.loads(line) for line in lines_of(spool, node, unsealed=unsealed)]
    return sorted(events, key=lambda event: event["time_us"])


def assert_numbered(events):
    """Each boot's numbers are without a gap."""
    for boot in {event["boot"] for event in events}:
        numbers = sorted(event["seq"] for event in events if event["boot"] == boot)
        assert numbers == list(range(len(numbers))), boot
