import java.io.FileReader;
import java.io.Reader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.ArrayList;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.UnsupportedSaslMechanismException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Tries each properties file: produces one record and reads it back. Prints TOPIC TAB OUTCOME TAB DETAIL, a line each. */
public final class SecurityProbe {
    private static final Duration PATIENCE = Duration.ofSeconds(6);

    public static void main(String[] files) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<String>> lines = new ArrayList<>();
        for (String file : files) {
            lines.add(pool.submit(() -> attempt(file)));
        }
        for (Future<String> line : lines) {
            System.out.println(line.get());
        }
        pool.shutdownNow();
        System.exit(0);
    }

    private static String attempt(String file) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = new FileReader(file)) {
            settings.load(reader);
        }
        String topic = Path.of(file).getFileName().toString().replace(".properties", "");
        try {
            return topic + "\t" + (produceAndConsume(settings, topic) ? "works" : "nothing") + "\t";
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null && !refused(cause)) {
                cause = cause.getCause();
            }
            return topic + "\t" + (refused(cause) ? "refused" : "nothing") + "\t" + String.valueOf(cause).replace('\n', ' ');
        }
    }

    private static boolean refused(Throwable cause) {
        return cause instanceof SaslAuthenticationException || cause instanceof UnsupportedSaslMechanismException;
    }

    private static boolean produceAndConsume(Properties settings, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, 0, null, "value")).get();
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            long end = System.nanoTime() + PATIENCE.toNanos();
            while (System.nanoTime() < end) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    return records.iterator().next().value().equals("value");
                }
            }
            return false;
        }
    }
}
