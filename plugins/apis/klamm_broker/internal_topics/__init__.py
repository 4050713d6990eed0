"""Kafka's internal topics, `__consumer_offsets` and the like: records of what the store has.

The store is the truth, and no thread of this server reads the topics. `RecordSource` says how rows become records,
`StoreChanges` which rows have changed, `Reconciliation` what a topic lacks, and `InternalTopics` writes.
"""

from klamm_broker.internal_topics.internal_topics import InternalTopics

__all__ = ["InternalTopics"]
