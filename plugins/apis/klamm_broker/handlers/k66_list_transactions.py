"""ListTransactions, versions 0 to 2 (KIP-664).

Lists transactional ids with producer and state, filtered by state, producer id, duration (v1, KIP-994) and a pattern of
the id (v2, KIP-1152). Follows `KafkaApis.handleListTransactionsRequest` and
`TransactionStateManager.listTransactionStates`.

- An unknown state matches no id, and the response names it.
- A pattern that RE2 does not accept, or that is too costly to compile: INVALID_REGULAR_EXPRESSION.

Authorization: DESCRIBE on each transactional id; ids without this permission are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.shared import compile_re2
from klamm.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from klamm_broker.security.authorization import shows
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.state import TransactionState as State
from klamm_broker.transactions.transaction import Transaction


def list_matching(
    broker: BrokerServices, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List the transactional ids that pass all filters. Raises KafkaError. Runs on the processor's thread, so it must
    not block.
    """
    known = {state.value: state for state in State}
    context.expect_answer(len(broker.transactions.registry.all()))
    passes = _filter(request, known, broker.clock.wall_ms(), context)
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in known],
        transaction_states=[
            TransactionState(each.transactional_id, each.record.producer_id, each.state.value)
            for each in broker.transactions.registry.all()
            if passes(each)
            and broker.cluster.coordinates(each.transactional_id)
            and shows(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ],
    )


def _filter(
    request: ListTransactionsRequest, known: dict[str, State], now_ms: int, context: RequestContext
) -> Callable[[Transaction], bool]:
    states = {known[name] for name in request.state_filters if name in known}
    producer_ids = set(request.producer_id_filters)
    matches = _pattern(request.transactional_id_pattern, context)

    def passes(transaction: Transaction) -> bool:
        record = transaction.record
        return (
            (not producer_ids or record.producer_id in producer_ids)
            and (not request.state_filters or record.state in states)
            and not (request.duration_filter >= 0 and now_ms - record.start_ms <= request.duration_filter)
            and matches(transaction.transactional_id)
        )

    return passes


def _pattern(pattern: str | None, context: RequestContext) -> Callable[[str], bool]:
    """Return a function that matches a whole id, in linear time."""
    if not pattern:
        return lambda _: True
    # With a pattern, a handler thread makes the list, because matching many ids takes a long time.
    context.leave_processor()
    try:
        compiled = compile_re2(pattern)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return lambda text: compiled.fullmatch(text) is not None
