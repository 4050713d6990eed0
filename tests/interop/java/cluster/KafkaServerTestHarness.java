package kafka.integration;

import java.io.File;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KRaftQuorumImplementation;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.junit.KlammBrokers;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.mutable.ArrayBuffer;
import scala.collection.mutable.Buffer;

/** Stands before Kafka's class of this name on the class path: its tests in Scala get a klamm too. */
@ExtendWith(KafkaServerTestHarness.Aborted.class)
public abstract class KafkaServerTestHarness extends QuorumTestHarness {
    /** Beginnings of keys that Kafka's harness sets itself, for brokers in its JVM. */
    private static final Set<String> OF_THE_HARNESS = Set.of(
        "node.id", "broker.id", "listeners", "advertised.listeners", "listener.security.protocol.map", "log.dir", "log.dirs",
        "process.roles", "metadata.log.dir", "inter.broker.listener.name", "security.inter.broker.protocol",
        "server.max.startup.time.ms", "background.threads", "log.segment.delete.delay.ms");

    private static final long PATIENCE_MS = 60_000;

    private final KlammBrokers klamm = new KlammBrokers();
    private final ArrayBuffer<KafkaBroker> brokers = new ArrayBuffer<>();
    private scala.collection.Seq<KafkaConfig> configs;

    /** Reports a test that asked for the inside of a broker as aborted. */
    static final class Aborted implements TestExecutionExceptionHandler {
        @Override
        public void handleTestExecutionException(ExtensionContext context, Throwable failure) throws Throwable {
            KlammBrokers klamm = ((KafkaServerTestHarness) context.getRequiredTestInstance()).klamm;
            throw klamm.outcome(failure);
        }
    }

    public abstract scala.collection.Seq<KafkaConfig> generateConfigs();

    @BeforeEach
    @Override
    public void setUp(TestInfo testInfo) {
        super.setUp(testInfo);
        if (securityProtocol() != SecurityProtocol.PLAINTEXT) {
            throw klamm.needs("a listener with " + securityProtocol());
        }
        Map<String, String> settings = new HashMap<>();
        configs().head().originals().forEach((key, value) -> settings.put(key, String.valueOf(value)));
        settings.keySet().removeAll(OF_THE_HARNESS);
        try {
            klamm.start(configs().size(), settings);
        } catch (RuntimeException failure) {
            throw failure;
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
        for (int index = 0; index < configs().size(); index++) {
            KafkaConfig config = configs().apply(index);
            brokers.append(klamm.broker(index, method -> method.equals("config") ? config : null));
        }
    }

    @AfterEach
    @Override
    public void tearDown() {
        try {
            if (klamm.klamm() != null) {
                klamm.klamm().stop();
            }
        } catch (InterruptedException failure) {
            throw new RuntimeException(failure);
        }
        super.tearDown();
    }

    /** There is none. */
    @Override
    public KRaftQuorumImplementation newKRaftQuorum(TestInfo testInfo, Properties properties) {
        return null;
    }

    @Override
    public ControllerServer controllerServer() {
        throw klamm.needs("a controller");
    }

    @Override
    public scala.collection.Seq<ControllerServer> controllerServers() {
        throw klamm.needs("a controller");
    }

    public Buffer<KafkaBroker> brokers() {
        return brokers;
    }

    public Buffer<KafkaBroker> servers() {
        return brokers;
    }

    public Buffer<BrokerServer> brokerServers() {
        throw klamm.needs("the inside of a broker");
    }

    public scala.collection.Seq<KafkaBroker> aliveBrokers() {
        ArrayBuffer<KafkaBroker> alive = new ArrayBuffer<>();
        for (int index = 0; index < brokers.size(); index++) {
            if (klamm.klamm().running().contains(index)) {
                alive.append(brokers.apply(index));
            }
        }
        return alive;
    }

    public scala.collection.Seq<KafkaConfig> configs() {
        if (configs == null) {
            configs = generateConfigs();
        }
        return configs;
    }

    public Option<KafkaBroker> serverForId(int id) {
        return Option.apply(brokers.apply(id));
    }

    public int boundPort(KafkaBroker server) {
        return server.boundPort(listenerName());
    }

    public String bootstrapServers(ListenerName listenerName) {
        return klamm.klamm().bootstrapServers();
    }

    public ListenerName bootstrapServers$default$1() {
        return listenerName();
    }

    public SecurityProtocol securityProtocol() {
        return SecurityProtocol.PLAINTEXT;
    }

    public ListenerName listenerName() {
        return ListenerName.forSecurityProtocol(securityProtocol());
    }

    public Option<File> trustStoreFile() {
        return Option.empty();
    }

    public Option<Properties> serverSaslProperties() {
        return Option.empty();
    }

    public Option<Properties> clientSaslProperties() {
        return Option.empty();
    }

    public Time brokerTime(int brokerId) {
        return Time.SYSTEM;
    }

    public void configureSecurityBeforeServersStart(TestInfo testInfo) {}

    public void configureSecurityAfterServersStart() {}

    public void ensureConsistentKRaftMetadata() {}

    /** klamm has no such topic. */
    public void createOffsetsTopic(ListenerName listenerName, Properties adminClientConfig) {}

    public ListenerName createOffsetsTopic$default$1() {
        return listenerName();
    }

    public Properties createOffsetsTopic$default$2() {
        return new Properties();
    }

    /** Leaders by partition, once each has one. */
    public scala.collection.immutable.Map<Object, Object> createTopic(
        String topic, int numPartitions, int replicationFactor, Properties topicConfig, ListenerName listenerName,
        Properties adminClientConfig) {
        Map<String, String> configs = new HashMap<>();
        topicConfig.forEach((key, value) -> configs.put(key.toString(), value.toString()));
        return create(new NewTopic(topic, numPartitions, (short) replicationFactor).configs(configs), numPartitions);
    }

    private scala.collection.immutable.Map<Object, Object> create(NewTopic wanted, int numPartitions) {
        Map<Object, Object> leaders = new HashMap<>();
        try (Admin admin = admin()) {
            admin.createTopics(Set.of(wanted)).all().get();
            TestUtils.waitForCondition(() -> {
                leaders.clear();
                for (TopicPartitionInfo info : admin.describeTopics(Set.of(wanted.name())).allTopicNames().get()
                    .get(wanted.name()).partitions()) {
                    if (info.leader() != null) {
                        leaders.put(info.partition(), info.leader().id());
                    }
                }
                return leaders.size() == numPartitions;
            }, PATIENCE_MS, wanted.name() + " has no leaders");
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
        return Map$.MODULE$.from(scala.jdk.javaapi.CollectionConverters.asScala(leaders));
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", klamm.klamm().bootstrapServers()));
    }

    public int createTopic$default$2() {
        return 1;
    }

    public int createTopic$default$3() {
        return 1;
    }

    public Properties createTopic$default$4() {
        return new Properties();
    }

    public ListenerName createTopic$default$5() {
        return listenerName();
    }

    public Properties createTopic$default$6() {
        return new Properties();
    }

    public void deleteTopic(String topic, ListenerName listenerName) {
        try (Admin admin = admin()) {
            admin.deleteTopics(Set.of(topic)).all().get();
            TestUtils.waitForCondition(() -> !admin.listTopics().names().get().contains(topic), PATIENCE_MS, topic + " is left");
        } catch (Exception failure) {
            throw failure.getCause() instanceof UnknownTopicOrPartitionException gone ? gone : new RuntimeException(failure);
        }
    }

    public ListenerName deleteTopic$default$2() {
        return listenerName();
    }

    public void killBroker(int index) {
        brokers.apply(index).shutdown();
    }

    public void killBroker(int index, Duration timeout) {
        killBroker(index);
    }

    public void startBroker(int index) {
        brokers.apply(index).startup();
    }

    public void restartDeadBrokers(boolean reconfigure) {
        if (reconfigure) {
            throw klamm.needs("brokers with another configuration");
        }
        for (int index = 0; index < brokers.size(); index++) {
            if (!klamm.klamm().running().contains(index)) {
                startBroker(index);
            }
        }
    }

    public boolean restartDeadBrokers$default$1() {
        return false;
    }
}
