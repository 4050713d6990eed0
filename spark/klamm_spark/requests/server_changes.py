"""State changes of the servers of a cluster, which klamm does not serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from klamm.wire.api_keys import ApiKey
from klamm_spark.requests.change_parts import Names, StateChanges
from klamm_spark.requests.resources import Resource

_K = ApiKey

SERVER_CHANGES: Final = StateChanges()


@SERVER_CHANGES.of(
    _K.CONTROLLED_SHUTDOWN,
    _K.ALTER_PARTITION,
    _K.BROKER_REGISTRATION,
    _K.ALLOCATE_PRODUCER_IDS,
    _K.ASSIGN_REPLICAS_TO_DIRS,
    types=("BROKER",),
)
def _broker(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("BROKER", str(request.broker_id))


@SERVER_CHANGES.of(_K.ADD_RAFT_VOTER, _K.REMOVE_RAFT_VOTER, _K.UPDATE_RAFT_VOTER, types=("VOTER",))
def _voter(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("VOTER", str(request.voter_id))


@SERVER_CHANGES.of(
    _K.LEADER_AND_ISR,
    _K.STOP_REPLICA,
    _K.UPDATE_METADATA,
    _K.VOTE,
    _K.BEGIN_QUORUM_EPOCH,
    _K.END_QUORUM_EPOCH,
    _K.ENVELOPE,
    _K.CONTROLLER_REGISTRATION,
    types=("CLUSTER",),
)
def _cluster(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield Resource("CLUSTER", "kafka-cluster")
