"""Functions that make Fetch responses of every version, and the forms in which observers get streamed ones."""

from klamm.forwarding import StreamedRecords
from klamm.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

VERSIONS = range(4, 16)


def fetch_response(choose, version, records, *, topics=(0, 1, 2, 3), partitions=(0, 1, 2, 3)):
    """Return a random Fetch response. `records()` makes the records of a partition."""

    def partition(index):
        found = PartitionData(index, choose.choice([0, 0, 1, 3]), choose.getrandbits(40), choose.getrandbits(30))
        found.aborted_transactions = choose.choice([None, [], [AbortedTransaction(3, 4), AbortedTransaction(5, 6)]])
        found.records = records()
        if version >= 5:
            found.log_start_offset = choose.getrandbits(20)
        if version >= 11:
            found.preferred_read_replica = choose.randrange(-1, 3)
        if version >= 12:
            found.diverging_epoch = choose.choice([None, EpochEndOffset(1, 2)])
            found.current_leader = choose.choice([None, LeaderIdAndEpoch(3, 4)])
            found.snapshot_id = choose.choice([None, SnapshotId(5, 6)])
        return found

    def topic(number):
        found = FetchableTopicResponse(partitions=[partition(index) for index in range(choose.choice(partitions))])
        if version >= 13:
            found.topic_id = bytes([number + 1]) * 16
        else:
            found.topic = f"topic-{number}" * choose.choice([1, 20])
        return found

    made = FetchResponse(choose.getrandbits(10), responses=[topic(number) for number in range(choose.choice(topics))])
    if version >= 7:
        made.error_code, made.session_id = choose.choice([0, 70]), choose.getrandbits(20)
    return made


def without_records(response):
    """Return the same response with sizes in place of records."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records:
                partition.records = StreamedRecords(len(partition.records))
    return response
