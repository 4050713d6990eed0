"""Kafka's internal topics, e.g. `__consumer_offsets`: records that show the content of the store.

The store is authoritative; this server reads the topics only to compare them with it. `RecordSource` turns rows into
records, `StoreChanges` finds changed rows, `TopicProjection` finds the records that a topic lacks, `TopicLog` appends
them, and `InternalTopics` schedules the work.
"""

from klamm_broker.internal_topics.internal_topics import InternalTopics

__all__ = ["InternalTopics"]
