"""The list of APIs: it says what the handlers' marks say, and imports a handler at its first request."""

import pkgutil
import subprocess
import sys

import pytest

from klamm import bind_handlers, handles
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages import heartbeat
from klamm_broker import handlers as package
from klamm_broker.handlers import k12_heartbeat
from klamm_broker.handlers.registry import APIS, LazyApi, handlers


def test_the_list_says_what_the_marks_say():
    for handler in handlers(object()):
        # Raises if it does not.
        module, handle = handler.load()
        assert (handler.api_key, handler.name) == (module.API_KEY, module.NAME)
        assert callable(handle)


def test_every_handler_module_is_listed():
    modules = {module.name for module in pkgutil.iter_modules(package.__path__) if module.name.startswith("k")}
    listed = [api.function.partition(".")[0] for api in APIS]
    assert sorted([*listed, "k03_metadata"]) == sorted(modules)


@pytest.mark.parametrize(
    "listed",
    [
        LazyApi(ApiKey.HEARTBEAT, "k12_heartbeat.keep_session", range(0, 4), blocking=False),
        LazyApi(ApiKey.HEARTBEAT, "k12_heartbeat.keep_session", range(0, 5)),
        LazyApi(ApiKey.LEAVE_GROUP, "k12_heartbeat.keep_session", range(0, 5), blocking=False),
    ],
)
def test_a_handler_that_is_listed_wrongly_is_not_served(listed):
    with pytest.raises(ValueError, match="k12_heartbeat.keep_session"):
        listed.bind(object()).load()


def test_a_handler_is_bound_to_the_services_once(monkeypatch):
    @handles(heartbeat, versions=range(0, 5), blocking=False)
    def answer(services, request, context):
        return services, request, context

    monkeypatch.setattr(k12_heartbeat, "keep_session", answer)
    services = object()
    handler = LazyApi(ApiKey.HEARTBEAT, "k12_heartbeat.keep_session", range(0, 5), blocking=False).bind(services)
    assert handler.handle(1, 2) == (services, 1, 2)
    assert handler.handle is handler.handle
    assert handler.module is heartbeat
    (eager,) = bind_handlers([answer], services)
    assert (eager.module, eager.handle(1, 2)) == (heartbeat, (services, 1, 2))


def test_listing_the_apis_imports_no_handler_but_metadata():
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from klamm_broker.handlers.registry import handlers\n"
        "listed = list(handlers(object()))\n"
        "print(len(listed), *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    count, *modules = done.stdout.split()
    assert int(count) == len(APIS) + 1
    imported = {name for name in modules if name.startswith(("klamm_broker.handlers.k", "klamm.wire.messages."))}
    assert imported == {"klamm_broker.handlers.k03_metadata", "klamm.wire.messages.metadata"}
