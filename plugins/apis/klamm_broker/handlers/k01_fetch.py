"""Fetch, versions 4 to 18.

Records are sent directly from the segment files. A request that finds fewer than `min_bytes` waits in a purgatory for
further appends, at most `max_wait_ms`. Incremental sessions (KIP-227) from version 7, topic ids (KIP-516) from 13.
Follows `KafkaApis.handleFetchRequest`, `ReplicaManager.fetchMessages`, `FetchManager`.

- `max_bytes` is capped by `fetch.max.bytes`; at least one whole batch of the first partition with data is returned
  (KIP-74).
- `read_committed` ends at the last stable offset and names aborted transactions.
- A client that exceeds its quota of bytes or request time gets a response without partitions (KIP-219).
- Authorization: READ on each topic, once per request.
- A partition that another node leads: NOT_LEADER_OR_FOLLOWER; from version 11 on its replicas serve it too (KIP-392).
  From version 16 on the answer names the leader (KIP-951).
- A leader epoch later than the current one: UNKNOWN_LEADER_EPOCH; an earlier one: FENCED_LEADER_EPOCH.

Deviations: there are no followers, so `replica_id`, `replica_state` and the follower's fields of a partition are not
read, no epoch ever diverges, and no replica is preferred.
"""

from __future__ import annotations

from klamm import KafkaError, Pending, RequestContext
from klamm.wire.messages.fetch import FetchRequest, FetchResponse
from klamm_broker.fetch.reading import READ_AT_ONCE, DelayedFetch, PendingFetch
from klamm_broker.fetch.sessions import INITIAL_EPOCH, context_of
from klamm_broker.limits.ledger import UNKNOWN_OWNER
from klamm_broker.limits.owners import owner_of
from klamm_broker.services import BrokerServices


def fetch_records(broker: BrokerServices, request: FetchRequest, context: RequestContext) -> FetchResponse | Pending:
    """Respond with the available records, or wait for more. Runs on the processor's thread, so it must not block."""
    # A small request may continue a session with many thousand partitions. Another thread then reads them.
    if request.session_id and broker.fetch_sessions.size_of(request.session_id) > READ_AT_ONCE:
        context.leave_processor()
    try:
        owner = owner_of(context) if request.session_epoch == INITIAL_EPOCH else UNKNOWN_OWNER
        session = context_of(broker.fetch_sessions, request, context.api_version, broker.topics.generation, owner)
    except KafkaError as error:
        return FetchResponse(error_code=error.error_code)
    pending = PendingFetch(broker, request, context, session)
    reading = pending.read()
    if request.max_wait_ms <= 0 or reading.size_bytes >= pending.min_bytes or reading.failed or not reading.ends:
        return pending.response(reading)
    delayed = DelayedFetch(pending, reading, request.max_wait_ms, pending.min_bytes, broker.run_later)
    broker.fetch_purgatory.try_complete_else_watch(delayed, delayed.keys)
    return context.later()
