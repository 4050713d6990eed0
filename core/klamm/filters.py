"""Names for authors of a `klamm.RequestFilter`: further results, and the access to records.

A filter returns a message or a `klamm.Answer`, or raises `klamm.KafkaError`. It may also return a `Hold` or an
`EncodedResponse`, or raise `Disconnect`.
`RecordAccess` gives the records in Produce, Fetch and ShareFetch.
"""

from klamm.api.context import TopicNames
from klamm.api.filtered_records import PartitionRecords, RecordAccess, clear_records
from klamm.api.filters import Disconnect, EncodedResponse, Hold, Release

__all__ = [
    "Disconnect",
    "EncodedResponse",
    "Hold",
    "PartitionRecords",
    "RecordAccess",
    "Release",
    "TopicNames",
    "clear_records",
]
