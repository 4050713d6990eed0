"""The settings of the transaction coordinator: Kafka's keys, meanings and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm.config import CLUSTER_WIDE
from klamm_broker.numbers import INT32_MAX


# No slots: `BrokerSettings` inherits from several such classes, and only it has instances.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionSettings:
    """`transaction.*`, `transactional.*` and `producer.id.*` in `[broker]`."""

    transaction_max_timeout_ms: int = setting(
        900_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest timeout that a transactional producer may request.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000,
        minimum=1,
        doc="Interval between searches for transactions that have timed out, which are then aborted.",
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000,
        minimum=1,
        doc="Time for which a transactional id is kept after its last transaction.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000,
        minimum=1,
        doc="Interval between searches for expired transactional ids.",
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        minimum=1,
        doc="Time for which the state of an idempotent producer is kept after its last append.",
        dynamic=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000,
        minimum=1,
        doc="Interval between searches for expired producers.",
    )
    producer_id_max_entries: int = setting(
        500_000,
        minimum=1,
        doc="Maximum number of producers that all partitions remember together; a producer that writes to two "
        "partitions counts twice. Above it, klamm forgets the producers that have been idle longest before "
        "`producer.id.expiration.ms`. klamm's own key.",
    )
