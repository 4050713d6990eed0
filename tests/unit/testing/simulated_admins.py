"""Admins of simulated histories, who change and describe the config of a topic."""

from __future__ import annotations

from typing import Final

from klamm.testing.histories import Call
from klamm.wire.messages import describe_configs, incremental_alter_configs
from tests.unit.testing.simulated_clients import Ask, Workload
from tests.unit.testing.simulated_script import TOPIC

REGISTER: Final = f"config of {TOPIC}"
_KEY: Final = "max.message.bytes"
_LEAST_BYTES: Final = 1_000_000
_TOPIC_RESOURCE: Final = 2
_OF_THE_TOPIC: Final = 1


def admin(work: Workload, process: str, operations: int) -> Ask:
    """Change the config to a value of its own, or describe it."""
    for _ in range(operations):
        if work.choose.random() < 0.5:
            value = _LEAST_BYTES + next(work.values)
            with work.record.operation(process, "set", {"register": REGISTER, "value": value}) as call:
                yield from _set(call, value)
        else:
            with work.record.operation(process, "get", {"register": REGISTER}) as call:
                yield from _get(call)
        yield work.choose.randrange(500)


def _set(call: Call, value: int) -> Ask:
    config = incremental_alter_configs.AlterableConfig(_KEY, 0, str(value))
    resource = incremental_alter_configs.AlterConfigsResource(_TOPIC_RESOURCE, TOPIC, [config])
    response = yield incremental_alter_configs.IncrementalAlterConfigsRequest([resource]), 1
    if response is not None and response.responses[0].error_code == 0:
        call.ok()


def _get(call: Call) -> Ask:
    resource = describe_configs.DescribeConfigsResource(_TOPIC_RESOURCE, TOPIC, [_KEY])
    response = yield describe_configs.DescribeConfigsRequest([resource]), 4
    if response is not None and response.results[0].error_code == 0:
        (found,) = response.results[0].configs
        value = int(found.value) if found.config_source == _OF_THE_TOPIC else None
        call.ok({"register": REGISTER, "value": value})
