package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import klamm.Answers.Fault;
import klamm.KlammKafka;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class OrdersTest {
    @RegisterExtension
    static final KlammKafka kafka = KlammKafka.create();

    /** The code under test: it sends an order. */
    private static void placeOrder(Map<String, Object> properties, String topic, String order) throws Exception {
        StringSerializer texts = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, texts, texts)) {
            producer.send(new ProducerRecord<>(topic, order)).get();
        }
    }

    @Test
    void ordersArrive() throws Exception {
        String topic = kafka.createTopic();
        placeOrder(kafka.getClientProperties(), topic, "order 1");
        assertEquals("order 1", kafka.consume(topic).get(0).valueAsString());
    }

    @Test
    void anOrderArrivesOnceThoughItsAnswerIsLost() throws Exception {
        String topic = kafka.createTopic();
        Fault lost = kafka.addFault("disconnect_after", Map.of("api", "Produce", "topic", topic, "count", 1));
        placeOrder(kafka.getClientProperties(), topic, "order 2");
        kafka.fault(lost.name(), Map.of("wait", 1));
        assertEquals(1, kafka.consume(topic).size());
    }

    @Test
    void clientsLogIn() throws Exception {
        try (KlammKafka secure = KlammKafka.create().withSecurity()) {
            String topic = secure.createTopic();
            secure.addUser("alice");
            secure.allow("alice", "ALL", "TOPIC", topic);
            placeOrder(secure.getClientProperties("alice"), topic, "order 3");
            assertEquals(1, secure.consume(topic).size());
        }
    }
}
