"""Records of each internal topic. This module is imported when such a topic exists, because it imports many modules of
messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from klamm_broker.internal_topics.classic_group_records import CLASSIC_GROUPS
from klamm_broker.internal_topics.consumer_group_records import CONSUMER_GROUPS
from klamm_broker.internal_topics.offset_records import OFFSETS
from klamm_broker.internal_topics.share_group_records import SHARE_GROUPS
from klamm_broker.internal_topics.share_state_records import SHARE_STATE
from klamm_broker.internal_topics.streams_group_records import STREAMS_GROUPS
from klamm_broker.internal_topics.transaction_records import TRANSACTIONS
from klamm_broker.topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from klamm_broker.internal_topics.record_source import RecordSource

SOURCES: Final[Mapping[str, Sequence[RecordSource]]] = {
    CONSUMER_OFFSETS: (OFFSETS, CLASSIC_GROUPS, *CONSUMER_GROUPS, *SHARE_GROUPS, *STREAMS_GROUPS),
    TRANSACTION_STATE: (TRANSACTIONS,),
    SHARE_GROUP_STATE: (SHARE_STATE,),
}
