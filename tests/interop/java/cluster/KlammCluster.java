package org.apache.kafka.common.test.junit;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;
import org.opentest4j.TestAbortedException;

/**
 * What Kafka's tests see of a cluster, with a klamm behind it.
 *
 * <p>Waiting for metadata is done with the AdminClient. Broker objects can be stopped, started and counted; anything else of
 * them aborts the test.
 */
final class KlammCluster implements ClusterInstance {
    private static final long PATIENCE_MS = 60_000;
    private static final int CONTROLLER_ID = 3_000;

    private final ClusterConfig config;
    private final KlammBrokers klamm = new KlammBrokers();
    private boolean started;
    private boolean stopped;

    KlammCluster(ClusterConfig config) {
        this.config = config;
    }

    /** What the test ends with after {@code failure}. */
    Throwable outcome(Throwable failure) {
        return klamm.outcome(failure);
    }

    private TestAbortedException needs(String what) {
        return klamm.needs(what);
    }

    private Map<String, String> settings() {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        config.perServerOverrideProperties().forEach((id, properties) -> {
            if (config.numBrokers() > 1) {
                throw needs("properties of one broker: " + properties);
            }
            settings.putAll(properties);
        });
        return settings;
    }

    @Override
    public void start() {
        if (started) {
            return;
        }
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
            throw needs("a listener with " + config.brokerSecurityProtocol());
        }
        try {
            klamm.start(config.numBrokers(), settings());
            started = true;
            setFeatures();
        } catch (Exception failure) {
            throw failure instanceof TestAbortedException aborted ? aborted : new RuntimeException(failure);
        }
    }

    private void setFeatures() throws ExecutionException, InterruptedException {
        Map<String, FeatureUpdate> updates = new HashMap<>();
        config.features().forEach((feature, level) -> {
            UpgradeType type = level == 0 ? UpgradeType.UNSAFE_DOWNGRADE : UpgradeType.UPGRADE;
            updates.put(feature.featureName(), new FeatureUpdate(level, type));
        });
        if (updates.isEmpty()) {
            return;
        }
        try (Admin admin = admin()) {
            Map<String, Short> current = new HashMap<>();
            admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                .forEach((name, range) -> current.put(name, range.maxVersionLevel()));
            updates.replaceAll((name, update) -> update.maxVersionLevel() < current.getOrDefault(name, (short) 0)
                ? new FeatureUpdate(update.maxVersionLevel(), UpgradeType.UNSAFE_DOWNGRADE) : update);
            updates.entrySet().removeIf(entry ->
                entry.getValue().maxVersionLevel() == current.getOrDefault(entry.getKey(), (short) 0));
            if (!updates.isEmpty()) {
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
            }
        }
    }

    @Override
    public void stop() {
        if (stopped || !started) {
            return;
        }
        stopped = true;
        try {
            klamm.klamm().stop();
        } catch (InterruptedException interrupted) {
            throw new RuntimeException(interrupted);
        }
    }

    @Override
    public void shutdownBroker(int brokerId) {
        try {
            klamm.klamm().stopNode(brokerId);
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }

    @Override
    public void startBroker(int brokerId) {
        try {
            klamm.klamm().startNode(brokerId);
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> brokers = new TreeMap<>();
        for (int brokerId = 0; brokerId < config.numBrokers(); brokerId++) {
            int id = brokerId;
            brokers.put(id, klamm.broker(id, method -> method.equals("config") ? klamm.inside().config(id) : null));
        }
        return brokers;
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        List<Integer> ports = new ArrayList<>();
        brokers().keySet().forEach(brokerId -> ports.add(klamm.klamm().port(brokerId)));
        return ports;
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        waitForTopic(topic, partitions);
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        waitForTopic(topic, 0);
    }

    private void waitForTopic(String topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(
                () -> partitions(admin, topic) == partitions, PATIENCE_MS, topic + " has not " + partitions + " partitions");
        }
    }

    private static int partitions(Admin admin, String topic) throws ExecutionException, InterruptedException {
        try {
            TopicDescription found = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
            return (int) found.partitions().stream().filter(each -> each.leader() != null).count();
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw failure;
        }
    }

    @Override
    public void ensureConsistentMetadata() {}

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {}

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(
                () -> admin.describeCluster().nodes().get().size() == klamm.klamm().running().size(), PATIENCE_MS,
                "nodes are missing");
        }
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> {
                Set<AccessControlEntry> found = new HashSet<>();
                admin.describeAcls(filter).values().get().forEach(binding -> found.add(binding.entry()));
                return found.equals(new HashSet<>(entries));
            }, PATIENCE_MS, "the ACLs are not " + entries);
        }
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        boolean classicOnly = config.features().entrySet().stream()
            .anyMatch(entry -> entry.getKey().featureName().equals("group.version") && entry.getValue() == 0);
        return classicOnly ? Set.of(GroupProtocol.CLASSIC) : Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get();
        } catch (ExecutionException | InterruptedException failure) {
            throw new RuntimeException(failure);
        }
    }

    @Override
    public String bootstrapServers() {
        return klamm.klamm().bootstrapServers();
    }

    @Override
    public String bootstrapControllers() {
        throw needs("a controller");
    }

    /** A caller with an id gets one that knows the ids of topics; a caller that waits for all controllers gets none. */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new HashMap<>() {
            @Override
            public ControllerServer get(Object id) {
                return klamm.inside().controller();
            }
        };
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of(CONTROLLER_ID);
    }

    @Override
    public ListenerName controllerListenerName() {
        throw needs("a controller");
    }

    @Override
    public List<Authorizer> authorizers() {
        throw needs("the authorizer's object");
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }
}
