"""The table of APIs contains all handlers. Each handler is imported at its first request."""

import inspect
import pkgutil
import subprocess
import sys

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import heartbeat
from klamm_broker import handlers as package
from klamm_broker.handlers import k12_heartbeat
from klamm_broker.handlers.served_apis import APIS, ServedApi


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.api_key.name)
def test_a_handlers_parameters_are_services_request_and_context(api):
    module, handle = api.bind(object()).load()
    assert api.api_key == module.API_KEY
    assert module.VERSIONS.start <= api.versions.start < api.versions.stop <= module.DECODABLE.stop
    assert [name.lstrip("_") for name in inspect.signature(handle).parameters] == ["request", "context"]
    assert module.NAME + "Request" in handle.__annotations__.values()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.api_key.name)
def test_a_handler_says_on_which_thread_it_runs(api):
    _module, handle = api.bind(object()).load()
    thread = "the processor's thread" if api.inline_max_bytes or not api.blocking else "a request handler's thread"
    assert f"Runs on {thread}" in " ".join(handle.__doc__.split())


def test_every_handler_module_is_in_the_table_once():
    modules = {module.name for module in pkgutil.iter_modules(package.__path__) if module.name.startswith("k")}
    assert sorted(api.module for api in APIS) == sorted(modules)
    assert len({api.api_key for api in APIS}) == len(APIS)


def test_a_handler_is_bound_to_the_services_once(monkeypatch):
    def answer(services, request, context):
        return services, request, context

    monkeypatch.setattr(k12_heartbeat, "keep_session", answer)
    services = object()
    handler = ServedApi(ApiKey.HEARTBEAT, "keep_session", range(0, 5), blocking=False).bind(services)
    assert handler.handle(1, 2) == (services, 1, 2)
    assert handler.handle is handler.handle
    assert handler.module is heartbeat


def test_listing_the_apis_imports_no_handler_but_metadata():
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from klamm_broker.handlers.served_apis import handlers\n"
        "listed = list(handlers(object()))\n"
        "print(len(listed), *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    count, *modules = done.stdout.split()
    assert int(count) == len(APIS)
    imported = {name for name in modules if name.startswith(("klamm_broker.handlers.k", "klamm.wire.messages."))}
    assert imported == {"klamm_broker.handlers.k03_metadata", "klamm.wire.messages.metadata"}
