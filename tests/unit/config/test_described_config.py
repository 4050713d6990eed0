"""Tests of the server's own settings as DescribeConfigs returns them."""

from __future__ import annotations

from klamm.config.described_config import described_configs


def test_numbers_are_described_with_kafkas_names(load):
    plan = load('[listeners.default]\napi_set = "echo"\n', "server.io_threads=3")
    configs = {config.name: config for config in described_configs(plan)}
    assert configs["num.io.threads"][1:4] == (3, 8, int)
    assert configs["connections.max.idle.ms"][1:4] == (600_000, 600_000, int)
    assert configs["socket.request.max.bytes"].value == 104_857_600
    assert not {"log.dirs", "listeners", "max_incoming", "metrics"} & configs.keys()


def test_settings_of_other_listeners_are_described_if_they_differ_or_may_change(load):
    plan = load(
        '[listeners.one]\napi_set = "echo"\nprocessors = 2\n'
        '[listeners.Two]\napi_set = "echo"\nprocessors = 5\nbind = "127.0.0.1:0"\n'
    )
    configs = {config.name: config.value for config in described_configs(plan)}
    assert configs["num.network.threads"] == 2
    assert configs["listener.name.two.num.network.threads"] == 5
    of_listeners = {name for name in configs if name.startswith("listener.name.")}
    # Dynamic settings are described for each listener.
    assert of_listeners == {"listener.name.one.num.network.threads", "listener.name.two.num.network.threads"}
