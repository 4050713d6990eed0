"""Requests about the transactional id `x`, the topic `t` and the group `g`, for tests of authorization."""

from klamm.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.list_transactions import ListTransactionsRequest
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_PARTITION = AddPartitionsToTxnTopic("t", [0])
ADD = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=[_PARTITION])
ADD_OF_BROKERS = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("x", topics=[_PARTITION])])
ADD_OFFSETS = AddOffsetsToTxnRequest("x", group_id="g")
END = EndTxnRequest("x", 99)
COMMIT_OFFSETS = TxnOffsetCommitRequest(
    "x", "g", topics=[TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, 1)])]
)
WRITE_MARKER = WriteTxnMarkersRequest([WritableTxnMarker(1, 0, True, [WritableTxnMarkerTopic("none", [0])])])
DESCRIBE = DescribeTransactionsRequest(["x"])
LIST = ListTransactionsRequest()
