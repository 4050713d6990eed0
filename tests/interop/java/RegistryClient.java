import static org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema.forGeneric;

import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.RestService;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;

/**
 * Flink's Avro format, and Confluent's Java client that its jar contains, with the Schema Registry at the address of the first
 * argument. `write` prints an order in base64, `read` prints the order of the third argument, `client` calls the client.
 */
public class RegistryClient {
    static final Schema ORDER = new Schema.Parser()
            .parse("{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":["
                    + "{\"name\":\"id\",\"type\":\"string\"},{\"name\":\"total\",\"type\":\"double\"}]}");

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        switch (arguments[1]) {
            case "write":
                GenericData.Record order = new GenericData.Record(ORDER);
                order.put("id", "7");
                order.put("total", 9.5);
                byte[] written = forGeneric("orders-value", ORDER, url).serialize(order);
                System.out.println(Base64.getEncoder().encodeToString(written));
                break;
            case "read":
                var reader = ConfluentRegistryAvroDeserializationSchema.forGeneric(ORDER, url);
                System.out.println(reader.deserialize(Base64.getDecoder().decode(arguments[2])));
                break;
            default:
                RestService client = new RestService(url);
                avro(client);
                refusals(client);
                for (int i = 2; i < arguments.length; i++) {
                    other(client, arguments[i]);
                }
        }
    }

    static void avro(RestService client) throws Exception {
        int id = client.registerSchema(ORDER.toString(), "orders");
        equal(client.getId(id).getSchemaString(), ORDER.toString());
        String pair = "{\"type\":\"record\",\"name\":\"Pair\",\"fields\":[{\"name\":\"one\",\"type\":\"shop.Order\"}]}";
        List<SchemaReference> named = List.of(new SchemaReference("shop.Order", "orders", 1));
        int both = client.registerSchema(pair, "AVRO", named, "pairs").getId();
        equal(client.getReferencedBy("orders", 1), List.of(both));
        equal(client.lookUpSubjectVersion(pair, "AVRO", named, "pairs", false).getVersion(), 1);
        equal(client.getVersion("pairs", 1).getReferences(), named);
        equal(code(() -> client.deleteSubject(Map.of(), "orders")), 42206);
        equal(client.deleteSubject(Map.of(), "pairs"), List.of(1));
        equal(client.deleteSubject(Map.of(), "pairs", true), List.of(1));
        equal(client.getAllSubjects(), List.of("orders"));
    }

    static void refusals(RestService client) throws Exception {
        equal(code(() -> client.registerSchema("\"int\"", "orders")), 40901);
        equal(client.testCompatibility("\"int\"", "orders", true).isEmpty(), false);
        client.updateCompatibility("NONE", "orders");
        equal(client.testCompatibility("\"int\"", "orders", true), List.of());
        equal(code(() -> client.getVersion("missing", 1)), 40401);
        equal(code(() -> client.getId(99)), 40403);
        client.setMode("READONLY", "orders");
        equal(code(() -> client.registerSchema("\"long\"", "orders")), 42205);
    }

    static void other(RestService client, String type) throws Exception {
        String text = type.equals("JSON")
                ? "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"}}}"
                : "syntax = \"proto3\";\n\nmessage Order {\n  string id = 1;\n}\n";
        String changed = text.replace("\"string\"", "\"integer\"").replace("string id", "int32 id");
        int id = client.registerSchema(text, type, List.of(), type).getId();
        equal(client.getId(id).getSchemaType(), type);
        equal(client.lookUpSubjectVersion(text, type, List.of(), type, false).getId(), id);
        equal(code(() -> client.registerSchema(changed, type, List.of(), type)), 40901);
    }

    interface Call {
        Object run() throws Exception;
    }

    static int code(Call call) throws Exception {
        try {
            throw new AssertionError("the registry did not refuse it: " + call.run());
        } catch (RestClientException error) {
            return error.getErrorCode();
        }
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(found + " is not " + expected);
        }
    }
}
