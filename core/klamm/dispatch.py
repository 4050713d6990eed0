"""Contracts of assigners, which choose a connection's processor, and of request schedulers, which order requests."""

from klamm.api.dispatch import ConnectionLoad, Move, ProcessorAssigner, ProcessorLoad, RequestScheduler

__all__ = ["ConnectionLoad", "Move", "ProcessorAssigner", "ProcessorLoad", "RequestScheduler"]
