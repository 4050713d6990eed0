package org.apache.kafka.common.test.junit;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import kafka.server.KafkaBroker;
import org.opentest4j.TestAbortedException;

/**
 * Broker objects for tests, one for each node of a klamm: they can be stopped and started, and tell their port.
 *
 * <p>Anything else aborts the test, since it needs the inside of a broker in the same JVM.
 */
public final class KlammBrokers {
    private static final String ASSIGNMENT_INTERVAL = "group.consumer.assignment.interval.ms";

    /** Beginnings of keys for what klamm does not have: compression of internal topics, replication, controllers. */
    private static final List<String> WITHOUT_MEANING = List.of(
        "offsets.topic.compression.", "group.share.persister.", "group.share.assignment.interval.", "unstable.",
        "log.unclean.", "broker.heartbeat.", "broker.session.", "controlled.shutdown.", "log.initial.task.delay.ms",
        "replica.", "auto.leader.rebalance.", "leader.imbalance.", "controller.", "log.cleaner.dedupe.",
        "group.coordinator.append.", ASSIGNMENT_INTERVAL);

    private KlammProcess klamm;
    private KlammInside inside;
    private volatile String asked;

    /** What a test ends with after {@code failure}: it is aborted if it asked for what klamm does not have. */
    public Throwable outcome(Throwable failure) {
        if (failure instanceof ClassCastException && failure.getMessage().contains("BrokerServer")) {
            return needs("the inside of a broker: BrokerServer");
        }
        return asked == null ? failure : new TestAbortedException("needs " + asked, failure);
    }

    /** The exception that aborts the test. */
    public TestAbortedException needs(String what) {
        asked = what;
        return new TestAbortedException("needs " + what);
    }

    public KlammProcess klamm() {
        return klamm;
    }

    /** Starts {@code nodes} nodes with Kafka's properties; those without meaning for klamm are left out. */
    public void start(int nodes, Map<String, String> properties) throws Exception {
        Map<String, String> settings = new TreeMap<>(properties);
        if (!settings.getOrDefault(ASSIGNMENT_INTERVAL, "0").equals("0")) {
            throw new TestAbortedException("runs once: klamm assigns at once");
        }
        // Kafka ignores keys that it does not know; a test has the text of a description for a key.
        settings.keySet().removeIf(key -> key.contains(" "));
        settings.keySet().removeIf(key -> WITHOUT_MEANING.stream().anyMatch(key::startsWith));
        settings.forEach((key, value) -> {
            if (value.startsWith("org.apache.kafka.") || value.startsWith("kafka.")) {
                throw needs("a Java class in the broker: " + key);
            }
        });
        settings.put("node.id", "0");
        if (nodes > 1) {
            settings.put("nodes", String.valueOf(nodes));
        }
        inside = new KlammInside(this, properties);
        klamm = new KlammProcess(nodes, settings, "--ephemeral");
        klamm.start();
    }

    /** A broker; {@code further} answers more of its methods by name, or gives null. */
    public KafkaBroker broker(int brokerId, Function<String, Object> further) {
        return (KafkaBroker) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {KafkaBroker.class},
            (proxy, method, arguments) -> call(brokerId, further, proxy, method, arguments));
    }

    KlammInside inside() {
        return inside;
    }

    private Object call(
        int brokerId, Function<String, Object> further, Object proxy, Method method, Object[] arguments) throws Exception {
        switch (method.getName()) {
            case "startup":
                klamm.startNode(brokerId);
                return null;
            case "shutdown":
                klamm.stopNode(brokerId);
                return null;
            case "awaitShutdown":
                return null;
            case "isShutdown":
                return !klamm.running().contains(brokerId);
            case "boundPort":
                return klamm.port(brokerId);
            case "equals":
                return proxy == arguments[0];
            case "hashCode":
                return brokerId;
            case "toString":
                return "broker " + brokerId;
            case "metadataCache":
                return inside.metadataCache();
            case "groupCoordinator":
                return inside.groupCoordinator();
            case "socketServer":
                return inside.socketServer(brokerId);
            default:
                Object found = further.apply(method.getName());
                if (found == null) {
                    throw needs("the inside of a broker: " + method.getName());
                }
                return found;
        }
    }
}
