import com.google.protobuf.DynamicMessage;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import io.confluent.kafka.serializers.json.KafkaJsonSchemaDeserializer;
import io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufDeserializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Confluent's serializers: ConfluentSerializers BOOTSTRAP URL produce|consume TYPE... produces a record to the topic of each type,
 * or prints the value of the second one there.
 */
public class ConfluentSerializers {
    public static class Order {
        public String id = "7";
        public double total = 9.5;
    }

    static final Map<String, List<Class<?>>> CLASSES = Map.of(
            "AVRO", List.of(KafkaAvroSerializer.class, KafkaAvroDeserializer.class),
            "JSON", List.of(KafkaJsonSchemaSerializer.class, KafkaJsonSchemaDeserializer.class),
            "PROTOBUF", List.of(KafkaProtobufSerializer.class, KafkaProtobufDeserializer.class));

    public static void main(String[] arguments) throws Exception {
        for (int i = 3; i < arguments.length; i++) {
            String type = arguments[i];
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("schema.registry.url", arguments[1]);
            settings.put("value.serializer", CLASSES.get(type).get(0));
            settings.put("value.deserializer", CLASSES.get(type).get(1));
            settings.put("key.serializer", StringSerializer.class);
            settings.put("key.deserializer", StringDeserializer.class);
            if (arguments[2].equals("produce")) {
                try (KafkaProducer<String, Object> producer = new KafkaProducer<>(settings)) {
                    producer.send(new ProducerRecord<>(type, value(type))).get();
                }
            } else {
                System.out.println(second(settings, new TopicPartition(type, 0)));
            }
        }
    }

    static Object value(String type) {
        switch (type) {
            case "AVRO":
                Schema schema = new Schema.Parser()
                        .parse("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
                                + "{\"name\":\"id\",\"type\":\"string\"},{\"name\":\"total\",\"type\":\"double\"}]}");
                GenericData.Record order = new GenericData.Record(schema);
                order.put("id", "7");
                order.put("total", 9.5);
                return order;
            case "JSON":
                return new Order();
            default:
                String text = "syntax = \"proto3\"; package shop; message Order { string id = 1; }";
                DynamicMessage.Builder message = new ProtobufSchema(text).newMessageBuilder("shop.Order");
                return message.setField(message.getDescriptorForType().findFieldByName("id"), "7").build();
        }
    }

    static Object second(Map<String, Object> settings, TopicPartition place) {
        try (KafkaConsumer<String, Object> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(place));
            consumer.seek(place, 1);
            while (true) {
                for (var each : consumer.poll(Duration.ofSeconds(1))) {
                    return String.valueOf(each.value()).strip();
                }
            }
        }
    }
}
