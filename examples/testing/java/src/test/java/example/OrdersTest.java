package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class OrdersTest {
    private static Klamm klamm;

    @BeforeAll
    static void start() throws Exception {
        klamm = new Klamm();
    }

    @AfterAll
    static void stop() throws Exception {
        klamm.close();
    }

    private static void produce(String topic, String value) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", klamm.bootstrap());
        StringSerializer texts = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, texts, texts)) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }
    }

    @Test
    void recordsGoInAndComeOut() throws Exception {
        String topic = klamm.call("POST", "/topics", "").get("name").asText();
        produce(topic, "order 1");
        JsonNode records = klamm.call("GET", "/topics/" + topic + "/records", "");
        assertEquals(1, records.size());
        assertEquals("order 1", records.get(0).get("value").asText());
    }

    @Test
    void anIdempotentProducerSurvivesALostAnswer() throws Exception {
        String topic = klamm.call("POST", "/topics", "").get("name").asText();
        String rule = "{\"kind\": \"disconnect_after\", \"api\": \"Produce\", \"count\": 1, \"name\": \"%s\", \"topic\": \"%s\"}";
        klamm.call("POST", "/faults", rule.formatted(topic, topic));
        produce(topic, "order 2");
        assertEquals(1, klamm.call("GET", "/faults/" + topic + "?wait=1", "").get("fired").asInt());
        assertEquals(1, klamm.call("GET", "/topics/" + topic + "/records", "").size());
    }
}
