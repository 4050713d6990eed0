package example;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import klamm.KlammKafka;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

/** What clients do and see becomes a history, in which klamm looks for what a broker must not do. */
class HistoryTest {
    private static final int ORDERS = 20;

    @RegisterExtension
    static final KlammKafka kafka = KlammKafka.create();

    @TempDir
    Path folder;

    /** Records the work as one operation of a process. What fails has an unknown outcome. */
    private void operation(String process, String function, String value, Callable<String> work) throws Exception {
        write(process, "invoke", function, value);
        String result;
        try {
            result = work.call();
        } catch (Exception error) {
            write(process, "info", function, value);
            throw error;
        }
        write(process, "ok", function, result);
    }

    private void write(String process, String type, String function, String value) throws IOException {
        String line = String.format(
                "{\"process\": \"%s\", \"type\": \"%s\", \"f\": \"%s\", \"value\": [%s]}%n", process, type, function, value);
        Files.writeString(history(), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private Path history() {
        return folder.resolve("history.jsonl");
    }

    @Test
    void noOrderIsLostOrDoubledThoughAnswersAreLost() throws Exception {
        String topic = kafka.createTopic();
        kafka.addFault("disconnect_after", Map.of("api", "Produce", "topic", topic, "count", 1));
        IntegerSerializer numbers = new IntegerSerializer();
        try (KafkaProducer<Integer, Integer> producer =
                new KafkaProducer<>(kafka.getClientProperties(), numbers, numbers)) {
            for (int order = 0; order < ORDERS; order++) {
                ProducerRecord<Integer, Integer> record = new ProducerRecord<>(topic, 0, null, order);
                String sent = String.format("[\"send\", \"%s\", %d", topic, order);
                operation("producer", "send", sent + "]", () ->
                        sent + ", " + producer.send(record).get().offset() + "]");
            }
        }
        Map<String, Object> properties = new HashMap<>(kafka.getClientProperties());
        properties.put("group.id", topic + "-readers");
        properties.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<Integer, Integer> consumer =
                new KafkaConsumer<>(properties, new IntegerDeserializer(), new IntegerDeserializer())) {
            consumer.subscribe(List.of(topic));
            List<String> read = new ArrayList<>();
            while (read.size() < ORDERS) {
                operation("consumer", "poll", "[\"poll\"]", () -> {
                    List<String> found = new ArrayList<>();
                    for (ConsumerRecord<Integer, Integer> record : consumer.poll(Duration.ofSeconds(1))) {
                        found.add(String.format("[%d, %d]", record.offset(), record.value()));
                    }
                    read.addAll(found);
                    return String.format("[\"poll\", {\"%s\": [%s]}]", topic, String.join(", ", found));
                });
            }
        }
        assertTrue(verified().contains(" 0 anomalies"), verified());
    }

    private String verified() throws IOException {
        String named = System.getenv("KLAMM");
        List<String> command = new ArrayList<>(List.of((named == null ? "klamm" : named).split(" ")));
        command.addAll(List.of("verify-history", history().toString()));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        return new String(process.getInputStream().readAllBytes(), UTF_8);
    }
}
