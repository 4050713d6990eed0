package klamm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import klamm.Answers.ConsumedRecord;
import klamm.Answers.Fault;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.RegisterExtension;

@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class KlammKafkaTest {
    @RegisterExtension
    static final KlammKafka kafka = KlammKafka.create();

    @Test
    void recordsGoInAndComeOut() {
        String topic = kafka.createTopic(Map.of("partitions", 2, "configs", Map.of("retention.ms", 1000)));
        String key = Base64.getEncoder().encodeToString(new byte[] {'k'});
        Map<String, Object> options = Map.of("key", key, "headers", List.of(List.of("trace", "/w==")));
        assertEquals(0, kafka.produce(topic, options, new byte[] {(byte) 0xff}, null));
        assertEquals(2, kafka.produce(topic, "é", null));
        List<ConsumedRecord> records = kafka.consume(topic, 4);
        assertArrayEquals(new byte[] {(byte) 0xff}, records.get(0).value());
        assertEquals("k", records.get(0).keyAsString());
        assertEquals("trace", records.get(0).headers().get(0).name);
        assertArrayEquals(new byte[] {(byte) 0xff}, records.get(0).headers().get(0).value);
        assertNull(records.get(1).valueAsString());
        assertEquals("é", records.get(2).valueAsString());
        assertEquals(List.of(), kafka.consume(topic, Map.of("partition", 0, "offset", 4)));
        assertEquals(2, kafka.topics().get(topic));
        kafka.deleteTopic(topic);
    }

    @Test
    void errorsHaveAStatusAndAName() {
        KlammException refused = assertThrows(KlammException.class, () -> kafka.createTopic("a b"));
        assertEquals(409, refused.status());
        assertEquals("INVALID_TOPIC_EXCEPTION", refused.name());
        refused = assertThrows(KlammException.class, () -> kafka.fault("none"));
        assertEquals("there is no fault \"none\"", refused.getMessage());
        assertEquals(404, refused.status());
    }

    @Test
    @Order(1)
    void aFaultEndsWithItsTest() {
        Fault fault = kafka.addFault("delay", Map.of("api", "Fetch", "delay_ms", 5));
        assertEquals(0, kafka.fault(fault.name()).fired());
    }

    @Test
    @Order(2)
    void noFaultIsLeft() {
        assertEquals(List.of(), kafka.faults());
    }

    @Test
    void nodesAndTime() {
        try (KlammKafka broker = KlammKafka.create().withNodes(2).withSetting("num.partitions=3")) {
            assertEquals(2, broker.getBootstrapServers().split(",").length);
            String topic = broker.createTopic();
            int leader = broker.leaders(topic).get(0);
            assertFalse(broker.setNode(leader, false).get(leader - 1).running());
            broker.setNode(leader, true);
            assertEquals(3 - leader, broker.moveLeader(topic, 0, 3 - leader).get(0));
            assertEquals(-1, broker.moveLeader(topic, 0, null).get(0));
            assertEquals(2, broker.moveCoordinator("readers", 2).node());
            long before = System.currentTimeMillis();
            assertTrue(broker.advanceMs(3_600_000).wallMs() >= before + 3_600_000);
            assertThrows(IllegalStateException.class, broker::withSecurity);
        }
    }

    @Test
    void users() {
        try (KlammKafka broker = KlammKafka.create().withSecurity()) {
            broker.addUser("alice");
            broker.allow("alice", "READ", "TOPIC", "orders");
            assertEquals("User:alice", broker.acls(Map.of("user", "alice")).get(0).principal());
            Map<String, Object> properties = broker.getClientProperties("alice");
            assertEquals(broker.getBootstrapServers(), properties.get("bootstrap.servers"));
            assertEquals("SASL_SSL", properties.get("security.protocol"));
            Map<String, Object> spring = broker.getSpringProperties();
            assertEquals(broker.getBootstrapServers(), spring.get("spring.kafka.bootstrap-servers"));
            assertEquals("SASL_SSL", spring.get("spring.kafka.properties.security.protocol"));
        }
    }

    @Test
    void aBrokerThatDoesNotStartSaysWhy() {
        KlammKafka broker = KlammKafka.create().withSetting("num.partitons=3");
        String said = assertThrows(KlammException.class, broker::start).getMessage();
        assertTrue(said.contains("did you mean \"num.partitions\"?"), said);
        assertThrows(KlammException.class, KlammKafka.create().withCommand("no-such-command")::start);
    }

    @Test
    void theCommandIsTheFirstThatIsThere() {
        String requirement = "klamm==" + Broker.VERSION;
        assertEquals(List.of("klamm"), Broker.findCommand(null, "klamm"::equals));
        assertEquals(List.of("uvx", "--from", requirement, "klamm"), Broker.findCommand("", "uvx"::equals));
        assertEquals(List.of("pipx", "run", "--spec", requirement, "klamm"), Broker.findCommand("", "pipx"::equals));
        assertEquals(List.of("python3", "-m", "klamm"), Broker.findCommand(" ", "python3"::equals));
        assertEquals(List.of("/opt/klamm", "-x"), Broker.findCommand("/opt/klamm  -x", name -> false));
        assertThrows(KlammException.class, () -> Broker.findCommand(null, name -> false));
    }

    @Test
    void aFailingTestHasATimeline() throws Exception {
        try (KlammKafka broker = KlammKafka.create().withNodes(2)) {
            Throwable error = new AssertionError("on purpose");
            broker.beforeAll(failed(error));
            broker.beforeEach(failed(error));
            broker.setNode(2, false);
            broker.afterEach(failed(error));
            String said = error.getSuppressed()[0].toString();
            assertTrue(said.contains("node 2 stopped"), said);
            Path page = Path.of(said.substring(said.lastIndexOf('\n') + 1));
            assertTrue(Files.readString(page).contains("on purpose"));
        }
    }

    private static ExtensionContext failed(Throwable error) {
        Map<String, Object> answers = Map.of(
                "getExecutionException", Optional.of(error),
                "getTestClass", Optional.of(KlammKafkaTest.class),
                "getDisplayName", "a/test");
        Class<?>[] kinds = {ExtensionContext.class};
        return (ExtensionContext) Proxy.newProxyInstance(
                KlammKafkaTest.class.getClassLoader(), kinds, (proxy, method, all) -> answers.get(method.getName()));
    }

    @Test
    void jsonIsReadAndWritten() {
        String text = "{\"a\\n\":[1,-2.5,true,false,null,\"\\u00e9\\\"\"],\"b\":{},\"c\":[]}";
        assertEquals(Json.read(text), Json.read(Json.write(Json.read(" " + text + " "))));
        assertEquals("\"\\ud83d\\ude00\"", Json.write("😀"));
        for (String wrong : List.of("", "{", "[1", "tru", "\"a", "{\"a\"}", "1 2", "?")) {
            assertThrows(IllegalArgumentException.class, () -> Json.read(wrong), wrong);
        }
    }

    /** Each operation has a method, each value a class with a method for each member. */
    @Test
    void theDescriptionIsCovered() throws Exception {
        assertEquals(Broker.VERSION, kafka.about().version());
        Map<String, Object> description = kafka.openapi();
        Set<String> methods = namesOf(KlammClient.class);
        int count = 0;
        for (Object path : Answer.object(description.get("paths")).values()) {
            for (Object operation : Answer.object(path).values()) {
                String id = (String) Answer.object(operation).get("operationId");
                assertTrue(methods.contains(id), id);
                count++;
            }
        }
        assertTrue(count > 30);
        Set<String> options = Set.of("AccessRule", "Error", "Done", "TopicName", "FirstOffset", "FaultRule");
        Object schemas = Answer.object(description.get("components")).get("schemas");
        for (Map.Entry<String, Object> each : Answer.object(schemas).entrySet()) {
            if (!options.contains(each.getKey())) {
                Set<String> expected = Answer.object(Answer.object(each.getValue()).get("properties")).keySet().stream()
                        .map(KlammKafkaTest::camel)
                        .collect(Collectors.toSet());
                Set<String> found = namesOf(Class.forName("klamm.Answers$" + each.getKey()));
                found.removeAll(Set.of("valueAsString", "keyAsString", "toString"));
                assertEquals(expected, found, each.getKey());
            }
        }
    }

    private static Set<String> namesOf(Class<?> kind) {
        return Arrays.stream(kind.getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()))
                .map(Method::getName)
                .collect(Collectors.toCollection(HashSet::new));
    }

    private static String camel(String name) {
        StringBuilder found = new StringBuilder();
        for (String word : name.split("_")) {
            found.append(found.length() == 0 ? word : word.substring(0, 1).toUpperCase() + word.substring(1));
        }
        return found.toString();
    }
}
