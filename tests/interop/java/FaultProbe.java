// What Java's clients see of each kind of fault: KIND<tab>what was seen<tab>milliseconds.

import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class FaultProbe {
    private static Map<String, Object> config(String bootstrap) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.idempotence", false);
        config.put("acks", "all");
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        return config;
    }

    private static String produce(String bootstrap, String topic, Integer... partitions) throws Exception {
        TreeSet<String> seen = new TreeSet<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config(bootstrap))) {
            for (Integer partition : partitions) {
                try {
                    producer.send(new ProducerRecord<>(topic, partition, null, "value")).get();
                    seen.add("ok");
                } catch (ExecutionException error) {
                    seen.add(error.getCause().getClass().getSimpleName());
                }
            }
        }
        return String.join(" ", seen);
    }

    private static String consume(String bootstrap, String topic) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config(bootstrap))) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(List.of(new TopicPartition(topic, 0)));
            String seen = "";
            for (int i = 0; i < 100; i++) {
                try {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                    if (!records.isEmpty()) {
                        return seen + "ok";
                    }
                } catch (Exception error) {
                    // The records of its cache are wrong; a seek fetches them again.
                    seen += error.getClass().getSimpleName() + " ";
                    consumer.seekToBeginning(List.of(new TopicPartition(topic, 0)));
                }
            }
            return seen + "nothing";
        }
    }

    private static String commit(String bootstrap, String topic, String group) {
        Map<String, Object> config = config(bootstrap);
        config.put("group.id", group);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(1)));
            return "ok";
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        for (int i = 1; i < arguments.length; i++) {
            String kind = arguments[i];
            String topic = kind + "-java";
            long begun = System.nanoTime();
            String seen;
            if (kind.equals("corrupt")) {
                seen = consume(bootstrap, topic);
            } else if (kind.equals("coordinator_moved")) {
                seen = commit(bootstrap, topic, "faulty-java");
            } else {
                Integer[] any = {null};
                Integer[] partitions = kind.equals("partition_error") ? new Integer[] {0, 1} : any;
                seen = produce(bootstrap, topic, kind.equals("throttle") ? new Integer[] {null, null} : partitions);
            }
            System.out.println(kind + "\t" + seen + "\t" + (System.nanoTime() - begun) / 1_000_000);
        }
        System.exit(0);
    }
}
