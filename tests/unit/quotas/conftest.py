"""A throttle on a listener without a network, with a manual clock."""

import pytest

from klamm import Address, ConnectionContext, KafkaPrincipal, ListenerContext, RequestContext, ServerServices
from klamm.runtime import Scheduler
from klamm.shared import CLIENT_QUOTAS, client_quota_key
from klamm.testing import ManualClock
from klamm_throttling.client_quota import ClientQuota
from klamm_throttling.throttling_settings import ClientQuotaSettings

PRODUCE, FETCH, CREATE_TOPICS, METADATA = 0, 1, 19, 3


class Throttled:
    """A server with a throttle. Clients have a user and a client id."""

    def __init__(self, **settings):
        self.clock = ManualClock()
        self.services = ServerServices(self.clock, Scheduler(self.clock))
        self.listener = self.new_listener("default")
        self.throttle = ClientQuota(ClientQuotaSettings(**settings))
        self.throttle.open(self.listener)
        self.listener.throttles = (self.throttle,)

    def new_listener(self, name):
        return ListenerContext(name, Address("127.0.0.1", 1), Address("127.0.0.1", 1), services=self.services)

    def set_quotas(self, entity, **quotas):
        """Set quotas as AlterClientQuotas does. Without quotas the entity has none."""
        row = {"entity": entity, "quotas": quotas} if quotas else None
        self.services.shared.table(CLIENT_QUOTAS).update({client_quota_key(entity): row})

    def request(self, api_key=METADATA, user="alice", client_id="app", version=99):
        address = Address("10.0.0.1", 9)
        principal = KafkaPrincipal(user)
        connection = ConnectionContext("test", self.listener, address, address, principal)
        return RequestContext(connection, None, api_key, version, 1, client_id)

    def produce(self, size_bytes, **who):
        return self.throttle.charge(self.request(PRODUCE, **who), size_bytes, 0.0)

    def advance_ms(self, ms):
        self.clock.advance_ms(ms)
        self.services.scheduler.run_due()

    def metric(self, name):
        """Return the samples of one metric, by their labels."""
        for family in self.services.metrics.collect():
            if family.name == name:
                return {tuple(sample.labels.values()): sample.value for sample in family.samples}
        raise AssertionError(f"no metric {name}")


@pytest.fixture
def throttled():
    return Throttled()
