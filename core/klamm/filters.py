"""What a `klamm.RequestFilter` may return or raise beside messages, `klamm.Answer` and `klamm.KafkaError`."""

from klamm.api.context import TopicNames
from klamm.api.filters import Disconnect, EncodedResponse, Hold, Release

__all__ = ["Disconnect", "EncodedResponse", "Hold", "Release", "TopicNames"]
