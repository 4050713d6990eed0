"""An admin client sees the cluster that the handler set describes."""

from confluent_kafka.admin import AdminClient

import klamm_minimal
from klamm.testing import EmbeddedServer


def test_a_client_sees_one_broker_and_no_topics():
    with EmbeddedServer(["listeners.default.api_set=minimal"], plugins=[klamm_minimal]) as server:
        cluster = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=10)
        assert (cluster.cluster_id, cluster.topics) == ("minimal", {})
        assert [str(broker).partition("/")[0] for broker in cluster.brokers.values()] == [server.bootstrap]
