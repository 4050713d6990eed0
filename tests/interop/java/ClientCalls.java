import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces with each codec and in transactions, and consumes with a group of each protocol: bootstrap servers, topic. */
public class ClientCalls {
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        String topic = arguments[1];
        int count = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec))) {
                for (int i = 0; i < 100; i++) producer.send(new ProducerRecord<>(topic, i % 3, "k" + i, codec + i));
                producer.flush();
            }
            count += 100;
        }
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, String> settings = Map.of("group.id", topic + protocol, "group.protocol", protocol);
            try (KafkaConsumer<String, String> consumer = consumer(settings)) {
                consumer.subscribe(List.of(topic));
                show(protocol + " group reads", read(consumer, count).size());
                consumer.commitSync();
                show(protocol + " group has committed", committed(consumer, topic));
            }
            try (KafkaConsumer<String, String> consumer = consumer(settings)) {
                if (protocol.equals("classic")) consumer.subscribe(Pattern.compile("^" + topic + "$"));
                else consumer.subscribe(List.of(topic));
                show(protocol + " group reads again", read(consumer, 1).size());
            }
        }
        String id = topic + "-transactional";
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", id));
             KafkaConsumer<String, String> member = consumer(Map.of("group.id", id))) {
            member.subscribe(List.of(topic));
            read(member, count);
            producer.initTransactions();
            for (boolean commits : new boolean[] {true, false}) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, 0, "k", commits ? "yes" : "no"));
                // An abort drops what has not been sent.
                producer.flush();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(new TopicPartition(topic, 0), new OffsetAndMetadata(commits ? 5 : 6));
                producer.sendOffsetsToTransaction(offsets, member.groupMetadata());
                if (commits) producer.commitTransaction();
                else producer.abortTransaction();
            }
            TopicPartition first = new TopicPartition(topic, 0);
            show("offset of the transaction", member.committed(java.util.Set.of(first)).get(first).offset());
        }
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("isolation.level", isolation))) {
                consumer.assign(List.of(new TopicPartition(topic, 0)));
                consumer.seekToEnd(consumer.assignment());
                long end = consumer.position(new TopicPartition(topic, 0));
                consumer.seekToBeginning(consumer.assignment());
                long last = -1;
                int records = 0;
                while (consumer.position(new TopicPartition(topic, 0)) < end)
                    for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                        if (each.offset() <= last) throw new IllegalStateException("offsets go back");
                        last = each.offset();
                        records++;
                    }
                show(isolation, records);
            }
        }
    }

    private static KafkaProducer<String, String> producer(Map<String, String> settings) {
        return new KafkaProducer<>(with(settings), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Map<String, String> settings) {
        return new KafkaConsumer<>(with(settings), new StringDeserializer(), new StringDeserializer());
    }

    private static Properties with(Map<String, String> settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.putAll(settings);
        return all;
    }

    private static List<String> read(KafkaConsumer<String, String> consumer, int atLeast) {
        List<String> found = new ArrayList<>();
        long until = System.nanoTime() + Duration.ofSeconds(atLeast > 1 ? 60 : 5).toNanos();
        while (found.size() < atLeast && System.nanoTime() < until)
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) found.add(each.value());
        return found;
    }

    private static long committed(KafkaConsumer<String, String> consumer, String topic) {
        return consumer.committed(consumer.assignment()).values().stream().mapToLong(OffsetAndMetadata::offset).sum();
    }

    private static void show(String name, Object value) {
        System.out.println(name + "\t" + value);
    }
}
