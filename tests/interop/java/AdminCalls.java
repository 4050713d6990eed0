import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/** Calls what Kafka's Admin offers, in one run on one topic, and prints what came back: NAME TAB VALUE, a line each. */
public final class AdminCalls {
    /** So that no record is old enough to be deleted, nor of the future. */
    private static final long FIRST_TIMESTAMP_MS = System.currentTimeMillis() - 200_000;
    private static final long PATIENCE_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        try (Admin admin = Admin.create(settings)) {
            topics(admin, topic);
            produce(settings, topic);
            offsets(admin, topic);
            groups(admin, topic);
            configs(admin, topic);
            cluster(admin);
            admin.deleteTopics(List.of(topic)).all().get();
            print("deleted topic is described as", failure(() -> describe(admin, topic)));
        }
    }

    private static void topics(Admin admin, String topic) throws Exception {
        print("create without acting", failure(() -> admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1)),
                new org.apache.kafka.clients.admin.CreateTopicsOptions().validateOnly(true)).all().get()));
        var created = admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "7200000"))));
        print("created partitions", created.numPartitions(topic).get());
        print("created retention.ms", created.config(topic).get().get("retention.ms").value());
        print("topic id is the same", created.topicId(topic).get().equals(describe(admin, topic).topicId()));
        print("create again", failure(() -> admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get()));
        print("create with a bad name", failure(() -> admin.createTopics(List.of(new NewTopic("no good!", 1, (short) 1))).all().get()));
        print("create with three replicas", failure(() -> admin.createTopics(List.of(new NewTopic(topic + "x", 1, (short) 3))).all().get()));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        // A broker learns it from the controller.
        long deadlineMs = System.currentTimeMillis() + PATIENCE_MS;
        while (describe(admin, topic).partitions().size() < 3 && System.currentTimeMillis() < deadlineMs) {
            Thread.sleep(100);
        }
        print("partitions", describe(admin, topic).partitions().size());
        print("shrink", failure(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get()));
        print("is listed", admin.listTopics().names().get().contains(topic));
    }

    private static TopicDescription describe(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private static void produce(Properties settings, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 100; number++) {
                long timestampMs = FIRST_TIMESTAMP_MS + number * 1000L;
                producer.send(new ProducerRecord<>(topic, 0, timestampMs, "key", "value " + number)).get();
            }
        }
    }

    private static void offsets(Admin admin, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        Function<OffsetSpec, String> ask = spec -> {
            try {
                ListOffsetsResultInfo found = admin.listOffsets(Map.of(first, spec)).partitionResult(first).get();
                return found.offset() + "@" + (found.timestamp() < 0 ? -1 : found.timestamp() - FIRST_TIMESTAMP_MS);
            } catch (Exception error) {
                return error.toString();
            }
        };
        print("earliest", ask.apply(OffsetSpec.earliest()));
        print("latest", ask.apply(OffsetSpec.latest()));
        print("max timestamp", ask.apply(OffsetSpec.maxTimestamp()));
        print("at a timestamp", ask.apply(OffsetSpec.forTimestamp(FIRST_TIMESTAMP_MS + 50_000)));
        print("between timestamps", ask.apply(OffsetSpec.forTimestamp(FIRST_TIMESTAMP_MS + 50_001)));
        print("after all timestamps", ask.apply(OffsetSpec.forTimestamp(FIRST_TIMESTAMP_MS + 100_000)));
        print("deleted up to", admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(10))).lowWatermarks().get(first).get().lowWatermark());
        print("earliest after deletion", ask.apply(OffsetSpec.earliest()));
    }

    private static void groups(Admin admin, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        String group = topic + "-group";
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(42, "note"))).all().get();
        OffsetAndMetadata committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first);
        print("committed", committed.offset() + " " + committed.metadata());
        print("group is listed", admin.listGroups().all().get().stream().anyMatch(found -> found.groupId().equals(group)));
        print("group state", admin.describeClassicGroups(List.of(group)).all().get().get(group).state());
        admin.deleteConsumerGroupOffsets(group, java.util.Set.of(first)).all().get();
        print("committed after deletion", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first));
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(43))).all().get();
        admin.deleteConsumerGroups(List.of(group)).all().get();
        print("delete a group that is not there", failure(() -> admin.deleteConsumerGroups(List.of(group)).all().get()));
    }

    private static void configs(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        print("retention.ms", entry(admin, resource, "retention.ms"));
        Collection<AlterConfigOp> set = List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1000"), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, set)).all().get();
        print("retention.ms after alteration", entry(admin, resource, "retention.ms"));
        Collection<AlterConfigOp> delete = List.of(new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE));
        admin.incrementalAlterConfigs(Map.of(resource, delete)).all().get();
        print("retention.ms after deletion", entry(admin, resource, "retention.ms"));
        Collection<AlterConfigOp> bad = List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET));
        print("a bad value", failure(() -> admin.incrementalAlterConfigs(Map.of(resource, bad)).all().get()));
        print("compression.type", entry(admin, resource, "compression.type"));
        print("max.message.bytes", entry(admin, resource, "max.message.bytes"));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        print("broker num.partitions", entry(admin, broker, "num.partitions").split(" ")[0]);
    }

    private static String entry(Admin admin, ConfigResource resource, String name) throws Exception {
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return config.get(name).value() + " " + config.get(name).source();
    }

    private static void cluster(Admin admin) throws Exception {
        Collection<Node> nodes = admin.describeCluster().nodes().get();
        print("nodes", nodes.stream().map(Node::id).sorted().map(String::valueOf).collect(Collectors.joining(",")));
        print("controller is a node", admin.describeCluster().controller().get() != null);
        print("cluster id length", admin.describeCluster().clusterId().get().length());
        print("log dirs have the broker", new TreeMap<>(admin.describeLogDirs(List.of(1)).allDescriptions().get()).containsKey(1));
    }

    private interface Call {
        void run() throws Exception;
    }

    private static String failure(Call call) throws Exception {
        try {
            call.run();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static void print(String name, Object value) {
        System.out.println(name + "\t" + value);
    }
}
