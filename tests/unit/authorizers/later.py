"""A `LaterAuthorizer` of a listener without sockets, whose decisions a test holds back."""

import threading

from klamm import Address, KafkaPrincipal
from klamm.acl import AclOperation, LaterAuthorizer, LaterSettings, ResourceType
from klamm.testing import MemoryListener
from klamm.wire.messages.metadata import MetadataRequest

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC
ALICE = KafkaPrincipal("alice")
PATIENCE_S = 60


class Policy(LaterAuthorizer):
    """Allows READ of what is in `readable`; waits while `go_on` is cleared."""

    def __init__(self, settings=None):
        super().__init__(settings or LaterSettings())
        self.readable = {"orders"}
        self.asked = []
        self.is_down = False
        self.go_on = threading.Event()
        self.go_on.set()

    def permitted(self, principal, host, resource_type, resource_name):
        self.go_on.wait(PATIENCE_S)
        self.asked.append((str(principal), resource_name))
        if resource_name == "broken" or self.is_down:
            raise ConnectionError("the engine does not answer")
        return [READ] if resource_name in self.readable else []


class Opened:
    """An open authorizer and requests of Alice."""

    def __init__(self, **settings):
        self.listener = MemoryListener()
        self.policy = Policy(LaterSettings(**settings))
        self.policy.open(self.listener.context)
        self.context = self.request(ALICE)

    def request(self, principal):
        return self.listener.request(MetadataRequest(), 9, self.listener.connection(principal))

    def prepare(self, *names):
        return self.policy.prepare(self.context, [(TOPIC, name) for name in names])

    def may(self, operation, name, context=None):
        return self.policy.authorize(context or self.context, operation, TOPIC, name)

    def cached(self, operation, name):
        """Decide for a request that was not prepared."""
        return self.may(operation, name, self.request(ALICE))

    def settle(self, *names):
        """Prepare as a request does, and wait for the release."""
        released = threading.Event()
        release = self.prepare(*names)
        if release is not None:
            release.when_released(released.set)
            assert released.wait(PATIENCE_S)

    def metric(self, name):
        family = f"klamm:type=LaterAuthorizer,name={name}"
        (found,) = self.listener.services.metrics.collect(lambda one: one == family)
        return {sample.labels.get("result"): sample.value for sample in found.samples}


def elsewhere(it, host="192.0.2.7"):
    """Return a request of a client of another address."""
    connection = it.listener.connection(ALICE)
    connection.client_address = Address(host, 1)
    return it.listener.request(MetadataRequest(), 9, connection)


def released(release):
    """Return an event of a release."""
    event = threading.Event()
    release.when_released(event.set)
    return event
