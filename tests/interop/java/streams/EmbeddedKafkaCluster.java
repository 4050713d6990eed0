package org.apache.kafka.streams.integration.utils;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.test.junit.KlammBrokers;
import org.apache.kafka.server.util.MockTime;
import org.apache.kafka.test.TestUtils;

/** What the tests of Kafka Streams see of a cluster, with a klamm behind it. */
public class EmbeddedKafkaCluster {
    public final MockTime time;

    private final int brokers;
    private final Map<Integer, Map<String, String>> ofBrokers;
    private final Map<String, String> settings = new TreeMap<>();
    private final KlammBrokers klamm = new KlammBrokers();

    public EmbeddedKafkaCluster(int brokers) {
        this(brokers, new Properties());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties) {
        this(brokers, properties, Map.of());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, long startMs) {
        this(brokers, properties, Map.of(), startMs, System.nanoTime());
    }

    public EmbeddedKafkaCluster(int brokers, Properties properties, Map<Integer, Map<String, String>> ofBrokers) {
        this(brokers, properties, ofBrokers, System.currentTimeMillis(), System.nanoTime());
    }

    public EmbeddedKafkaCluster(
        int brokers, Properties properties, Map<Integer, Map<String, String>> ofBrokers, long startMs, long startNs) {
        this.brokers = brokers;
        this.ofBrokers = ofBrokers;
        this.time = new MockTime(startMs, startNs);
        settings.put("group.streams.min.session.timeout.ms", "100");
        settings.put("group.streams.min.heartbeat.interval.ms", "100");
        settings.put("group.min.session.timeout.ms", "0");
        settings.put("group.initial.rebalance.delay.ms", "0");
        settings.put("offsets.topic.num.partitions", "5");
        settings.put("offsets.topic.replication.factor", "1");
        settings.put("transaction.state.log.num.partitions", "5");
        settings.put("transaction.state.log.replication.factor", "1");
        properties.forEach((key, value) -> settings.put(key.toString(), value.toString()));
    }

    public void start() {
        if (ofBrokers.values().stream().anyMatch(each -> !each.isEmpty())) {
            throw klamm.needs("properties of one broker: " + ofBrokers);
        }
        try {
            klamm.start(brokers, settings);
        } catch (Exception failure) {
            throw failure instanceof RuntimeException known ? known : new RuntimeException(failure);
        }
    }

    public void verifyClusterReadiness() {
        getAllTopicsInCluster();
    }

    public void stop() {
        if (klamm.klamm() == null) {
            return;
        }
        try {
            klamm.klamm().stop();
        } catch (InterruptedException failure) {
            throw new RuntimeException(failure);
        }
    }

    public String bootstrapServers() {
        return klamm.klamm().bootstrapServers();
    }

    public boolean sslEnabled() {
        return false;
    }

    public void createTopics(String... topics) {
        for (String topic : topics) {
            createTopic(topic);
        }
    }

    public void createTopic(String topic) {
        createTopic(topic, 1, 1, Map.of());
    }

    public void createTopic(String topic, int partitions) {
        createTopic(topic, partitions, 1, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication) {
        createTopic(topic, partitions, replication, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication, Map<String, String> configs) {
        with(admin -> admin.createTopics(List.of(new NewTopic(topic, partitions, (short) replication).configs(configs))).all().get());
    }

    public void deleteTopics(String... topics) {
        for (String topic : topics) {
            deleteTopic(topic);
        }
    }

    public void deleteTopic(String topic) {
        delete(List.of(topic));
    }

    public void deleteAllTopics() {
        delete(getAllTopicsInCluster());
    }

    private void delete(Collection<String> topics) {
        with(admin -> {
            try {
                return admin.deleteTopics(topics).all().get();
            } catch (ExecutionException failure) {
                if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                    return null;
                }
                throw failure;
            }
        });
    }

    public void produce(Map<String, Object> settings, String topic, Integer partition, String key, String value) {
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(with(settings), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, partition, key, value));
        }
    }

    public Admin createAdminClient() {
        return Admin.create(with(Map.of()));
    }

    public Map<String, String> clientDefaultConfig() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrapServers()));
    }

    public KafkaConsumer<byte[], byte[]> createConsumer(Map<String, Object> settings) {
        Map<String, Object> all = with(settings);
        all.putIfAbsent("group.id", "group-" + System.nanoTime());
        all.putIfAbsent("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(Map<String, Object> settings, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(settings);
        consumer.subscribe(Arrays.asList(topics));
        return consumer;
    }

    public KafkaConsumer<byte[], byte[]> createConsumerAndSubscribeTo(
        Map<String, Object> settings, ConsumerRebalanceListener listener, String... topics) {
        KafkaConsumer<byte[], byte[]> consumer = createConsumer(settings);
        consumer.subscribe(Arrays.asList(topics), listener);
        return consumer;
    }

    public void waitForRemainingTopics(long timeoutMs, String... topics) throws InterruptedException {
        Set<String> wanted = Set.of(topics);
        TestUtils.waitForCondition(() -> getAllTopicsInCluster().equals(wanted), timeoutMs, () -> "topics are not " + wanted);
    }

    public Set<String> getAllTopicsInCluster() {
        return new HashSet<>(with(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()));
    }

    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Properties found = new Properties();
        with(admin -> admin.describeConfigs(List.of(resource)).values().get(resource).get()).entries().forEach(each -> {
            if (each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                found.put(each.name(), each.value());
            }
        });
        return found;
    }

    public void setGroupSessionTimeout(String group, int timeoutMs) {
        set(group, "streams.session.timeout.ms", timeoutMs);
    }

    public void setGroupHeartbeatTimeout(String group, int intervalMs) {
        set(group, "streams.heartbeat.interval.ms", intervalMs);
    }

    public void setGroupStandbyReplicas(String group, int replicas) {
        set(group, "streams.num.standby.replicas", replicas);
    }

    public void setGroupStreamsInitialRebalanceDelay(String group, int delayMs) {
        set(group, "streams.initial.rebalance.delay.ms", delayMs);
    }

    private void set(String group, String config, int value) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(config, String.valueOf(value)), AlterConfigOp.OpType.SET);
        with(admin -> admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get());
    }

    private Map<String, Object> with(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrapServers());
        return all;
    }

    private interface Call<T> {
        T of(Admin admin) throws Exception;
    }

    private <T> T with(Call<T> call) {
        try (Admin admin = createAdminClient()) {
            return call.of(admin);
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }
}
