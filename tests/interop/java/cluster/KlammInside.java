package org.apache.kafka.common.test.junit;

import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.mockito.Mockito;

/** What tests look up inside brokers and controllers, as an AdminClient finds it. Anything else aborts the test. */
final class KlammInside {
    private final KlammBrokers klamm;
    private final Map<String, String> properties;

    KlammInside(KlammBrokers klamm, Map<String, String> properties) {
        this.klamm = klamm;
        this.properties = properties;
    }

    KafkaConfig config(int brokerId) {
        Map<String, String> all = new TreeMap<>(properties);
        all.keySet().removeIf(key -> key.startsWith("unstable."));
        all.put("node.id", String.valueOf(brokerId));
        all.put("process.roles", "broker");
        all.put("controller.listener.names", "CONTROLLER");
        all.put("controller.quorum.bootstrap.servers", KlammProcess.HOST + ":1");
        all.put("listeners", "PLAINTEXT://" + KlammProcess.HOST + ":" + klamm.klamm().port(brokerId));
        return new KafkaConfig(all);
    }

    SocketServer socketServer(int brokerId) {
        return Mockito.mock(SocketServer.class, call -> {
            if (call.getMethod().getName().equals("boundPort")) {
                return klamm.klamm().port(brokerId);
            }
            throw klamm.needs("the inside of a broker: socketServer." + call.getMethod().getName());
        });
    }

    GroupCoordinator groupCoordinator() {
        return (GroupCoordinator) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {GroupCoordinator.class}, (proxy, method, arguments) -> {
                if (method.getName().equals("groupMetadataTopicConfigs")) {
                    return new Properties();
                }
                throw klamm.needs("the inside of a broker: groupCoordinator." + method.getName());
            });
    }

    MetadataCache metadataCache() {
        return (MetadataCache) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {MetadataCache.class},
            (proxy, method, arguments) -> metadata(method.getName(), arguments));
    }

    private Object metadata(String method, Object[] arguments) throws Exception {
        KlammProcess nodes = klamm.klamm();
        switch (method) {
            case "getAliveBrokerNodes":
                return nodes.running().stream().map(node -> new Node(node, KlammProcess.HOST, nodes.port(node))).toList();
            case "hasAliveBroker":
                return nodes.running().contains(arguments[0]);
            case "numPartitions":
                return topic((String) arguments[0]).map(found -> found.partitions().size());
            case "getLeaderAndIsr":
                return topic((String) arguments[0]).map(found -> leader(found.partitions().get((Integer) arguments[1])));
            default:
                throw klamm.needs("the inside of a broker: metadataCache." + method);
        }
    }

    private static LeaderAndIsr leader(TopicPartitionInfo partition) {
        return new LeaderAndIsr(
            partition.leader() == null ? LeaderAndIsr.NO_LEADER : partition.leader().id(),
            partition.isr().stream().map(Node::id).toList());
    }

    private Optional<TopicDescription> topic(String name) throws ExecutionException, InterruptedException {
        try (Admin admin = admin()) {
            return Optional.of(admin.describeTopics(Set.of(name)).allTopicNames().get().get(name));
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return Optional.empty();
            }
            throw failure;
        }
    }

    /** Knows the ids of topics, and nothing else. */
    ControllerServer controller() {
        Controller controller = (Controller) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {Controller.class}, (proxy, method, arguments) -> {
                if (method.getName().equals("findAllTopicIds")) {
                    return CompletableFuture.completedFuture(topicIds());
                }
                throw klamm.needs("a controller: " + method.getName());
            });
        return Mockito.mock(ControllerServer.class, call -> {
            if (call.getMethod().getName().equals("controller")) {
                return controller;
            }
            throw klamm.needs("a controller: " + call.getMethod().getName());
        });
    }

    private Map<String, Uuid> topicIds() throws ExecutionException, InterruptedException {
        Map<String, Uuid> ids = new TreeMap<>();
        try (Admin admin = admin()) {
            admin.listTopics().listings().get().forEach(each -> ids.put(each.name(), each.topicId()));
        }
        return ids;
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", klamm.klamm().bootstrapServers()));
    }
}
