"""Tests of routes, which import the modules of an API at its first request, or one by one with `load_one`."""

import pytest

from klamm.requests.routes import Routes
from klamm.wire.messages import heartbeat, metadata


class Handler:
    """An API whose modules are imported when `load` is called, like that of `klamm.ApiHandler`."""

    advertised = True
    blocking = False
    inline_max_bytes = 0
    opaque = False

    def __init__(self, module, failures=0):
        self.api_key, self.name, self.module = module.API_KEY, module.NAME, module
        self.min_version, self.max_version = module.VERSIONS.start, module.VERSIONS.stop - 1
        self.failures = failures
        self.loads = 0

    def load(self):
        if self.failures:
            self.failures -= 1
            raise OSError("Too many open files")
        self.loads += 1
        return self.module, lambda request, context: None


def test_modules_are_loaded_when_they_are_needed():
    handler = Handler(metadata)
    route = Routes([handler], "hybrid").find(metadata.API_KEY)
    assert (route.name, route.flexible_from, handler.loads) == ("Metadata", 9, 0)
    assert route.decode == metadata.MetadataRequest.decode
    assert not route.has_records
    assert handler.loads == 1


def test_an_api_that_cannot_be_loaded_now_is_loaded_later():
    handler = Handler(metadata, failures=1)
    route = Routes([handler], "hybrid").find(metadata.API_KEY)
    with pytest.raises(OSError, match="open files"):
        _ = route.decode
    assert route.decode == metadata.MetadataRequest.decode


def test_a_missing_attribute_of_a_route_raises():
    with pytest.raises(AttributeError, match="colour"):
        _ = Routes([Handler(metadata)], "hybrid").find(metadata.API_KEY).colour


def test_load_one_loads_all_modules_one_by_one():
    handlers = [Handler(metadata), Handler(heartbeat, failures=1)]
    routes = Routes(handlers, "hybrid")
    assert routes.load_one()
    with pytest.raises(OSError, match="open files"):
        routes.load_one()
    assert routes.load_one()
    assert not routes.load_one()
    assert [handler.loads for handler in handlers] == [1, 1]
