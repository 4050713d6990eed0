import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own Java client behind the verbs of the interop tests:
 * create TOPIC PARTITIONS; produce TOPIC CODEC (reads key TAB value lines); consume TOPIC; work TOPIC GROUP SESSION_TIMEOUT_MS.
 */
public final class InteropClient {
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        String topic = arguments[2];
        switch (arguments[0]) {
            case "create" -> create(settings, topic, Integer.parseInt(arguments[3]));
            case "produce" -> produce(settings, topic, arguments[3]);
            case "consume" -> consume(settings, topic);
            case "work" -> work(settings, topic, arguments[3], arguments[4]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        OUT.flush();
    }

    private static void create(Properties settings, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    private static void produce(Properties settings, String topic, String codec) throws Exception {
        settings.put("compression.type", codec);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line; (line = lines.readLine()) != null; ) {
                String[] record = line.split("\t", 2);
                sent.add(producer.send(new ProducerRecord<>(topic, record[0], record[1])));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> one : sent) one.get();
    }

    private static void consume(Properties settings, String topic) {
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(found -> partitions.add(new TopicPartition(topic, found.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> left = new HashMap<>(consumer.endOffsets(partitions));
            consumer.beginningOffsets(partitions).forEach((partition, begin) -> left.merge(partition, -begin, Long::sum));
            long wanted = left.values().stream().mapToLong(Long::longValue).sum();
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (wanted > 0) {
                if (System.nanoTime() > deadline) throw new IllegalStateException(wanted + " records did not come");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    print(record);
                    wanted--;
                }
            }
        }
    }

    private static void work(Properties settings, String topic, String group, String sessionTimeoutMs) throws Exception {
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", sessionTimeoutMs);
        settings.put("heartbeat.interval.ms", "1500");
        settings.put("auto.commit.interval.ms", "500");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(topic));
        try {
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) print(record);
                OUT.flush();
            }
        } catch (WakeupException stopped) {
            consumer.close();
        }
    }

    private static void print(ConsumerRecord<String, String> record) {
        OUT.print(record.partition() + "\t" + record.offset() + "\t" + record.key() + "\t" + record.value() + "\n");
    }
}
