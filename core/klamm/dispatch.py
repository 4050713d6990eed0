"""For authors of assigners and request schedulers: which processor serves a connection, which request comes next."""

from klamm.api.dispatch import ConnectionLoad, Move, ProcessorAssigner, ProcessorLoad, RequestScheduler

__all__ = ["ConnectionLoad", "Move", "ProcessorAssigner", "ProcessorLoad", "RequestScheduler"]
