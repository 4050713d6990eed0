package org.apache.kafka.common.test.junit;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** klamm's gateway before the cluster that a test of Kafka has started. There is one at a time. */
public final class Gateway {
    private static KlammProcess running;

    static {
        // A test that runs into its limit may leave it.
        Runtime.getRuntime().addShutdownHook(new Thread(Gateway::kill));
    }

    private Gateway() {}

    /** Where clients find the gateway. The first call of a test starts it, before the brokers at {@code bootstrap}. */
    public static synchronized String before(String bootstrap) {
        if (running == null) {
            String[] brokers = bootstrap.split(",");
            int firstPort = KlammProcess.lastingPorts(brokers.length);
            Map<String, String> settings = new TreeMap<>();
            settings.put("listeners.default.api_set", "gateway");
            settings.put(
                "gateway.bootstrap",
                Arrays.stream(brokers).collect(Collectors.joining("\", \"", "[\"", "\"]")));
            settings.put("gateway.node_ports", firstPort + "-" + (firstPort + brokers.length - 1));
            settings.put("gateway.first_node_id", "0");
            settings.put("gateway.metadata_max_age_ms", "1000");
            try {
                KlammProcess started = new KlammProcess(1, settings);
                started.start();
                running = started;
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }
        return running.bootstrapServers();
    }

    /** At the end of a test, before the cluster stops. */
    public static synchronized void stop() {
        if (running != null) {
            KlammProcess ending = running;
            running = null;
            try {
                ending.stop();
            } catch (InterruptedException failure) {
                throw new RuntimeException(failure);
            }
        }
    }

    private static synchronized void kill() {
        if (running != null) {
            running.kill();
        }
    }
}
