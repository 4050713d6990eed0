package klamm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import klamm.Answers.Timeline;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A Kafka broker for tests, in a process of its own.
 *
 * <pre>{@code
 * @RegisterExtension
 * static final KlammKafka kafka = KlammKafka.create();
 * }</pre>
 *
 * It starts before the tests of the class, or as soon as it is used, and stops after them. The faults of a test end with
 * it. If a test fails, its error has the timeline of the broker.
 */
public final class KlammKafka extends KlammClient
        implements BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback, AutoCloseable {
    private static final KlammKafka SHARED = new KlammKafka(true);
    private final boolean isShared;
    private final List<String> options = new ArrayList<>();
    private List<String> command;
    private Broker broker;
    // The test of a field that is not static: its class has no beforeAll.
    private boolean isOfOneTest = true;

    private KlammKafka(boolean isShared) {
        this.isShared = isShared;
    }

    public static KlammKafka create() {
        return new KlammKafka(false);
    }

    /** The broker that the classes of this process share. */
    public static KlammKafka shared() {
        return SHARED;
    }

    /** A setting of the broker, {@code KEY=VALUE}, as for {@code klamm serve --set}. */
    public KlammKafka withSetting(String setting) {
        return with("--set", setting);
    }

    /** Makes the broker several nodes. */
    public KlammKafka withNodes(int count) {
        return withSetting("nodes=" + count);
    }

    /** Has clients connect with TLS and SCRAM, and adds users and access control lists. */
    public KlammKafka withSecurity() {
        return with("--secure");
    }

    /** How to run klamm. Without it that is the variable KLAMM, or the first of klamm, uvx, pipx and python3. */
    public KlammKafka withCommand(String... words) {
        command = List.of(words);
        return this;
    }

    private synchronized KlammKafka with(String... words) {
        if (broker != null) {
            throw new IllegalStateException("the broker has been started");
        }
        options.addAll(List.of(words));
        return this;
    }

    /** Starts the broker, unless it runs. */
    public synchronized void start() {
        if (broker == null) {
            List<String> words = command;
            if (words == null) {
                words = Broker.findCommand(System.getenv("KLAMM"), Broker::isOnPath);
            }
            broker = new Broker(words, options);
            connect((String) broker.ready.get("control"), (String) broker.ready.get("token"));
        }
    }

    @Override
    void started() {
        start();
    }

    /** Stops the broker; its topics are gone. */
    public synchronized void stop() {
        if (broker != null) {
            broker.close();
            broker = null;
        }
    }

    @Override
    public void close() {
        stop();
    }

    /** The addresses that clients start from, with commas in between. */
    public synchronized String getBootstrapServers() {
        start();
        return (String) broker.ready.get("bootstrap");
    }

    /** What Java's clients need to connect: as the user admin, if the broker has users. */
    public Map<String, Object> getClientProperties() {
        return clientSettings("java", Map.of());
    }

    /** What Java's clients need to connect as a user. */
    public Map<String, Object> getClientProperties(String user) {
        return clientSettings("java", Map.of("user", user));
    }

    /** The same as properties of Spring Boot: {@code spring.kafka.bootstrap-servers}, {@code spring.kafka.properties.*}. */
    public Map<String, Object> getSpringProperties() {
        Map<String, Object> found = new TreeMap<>();
        getClientProperties().forEach((name, value) -> found.put("spring.kafka.properties." + name, value));
        found.put("spring.kafka.bootstrap-servers", found.remove("spring.kafka.properties.bootstrap.servers"));
        return found;
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        isOfOneTest = false;
        start();
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        forgetRequests();
    }

    @Override
    public void afterEach(ExtensionContext context) {
        context.getExecutionException().ifPresent(error -> report(context, error));
        clearFaults();
        if (isOfOneTest && !isShared) {
            stop();
        }
    }

    @Override
    public void afterAll(ExtensionContext context) {
        if (!isShared) {
            stop();
        }
    }

    private void report(ExtensionContext context, Throwable error) {
        String failure = "the test failed: " + String.valueOf(error).split("\n", 2)[0];
        Timeline found = timeline(Map.of("title", context.getDisplayName(), "failure", failure));
        if (found.text().isEmpty()) {
            return;
        }
        String page = write(context, found.html());
        context.publishReportEntry("klamm.timeline", page);
        error.addSuppressed(new TimelineOfBroker(found.text() + "\n" + page));
    }

    private static String write(ExtensionContext context, String html) {
        String name = context.getTestClass().map(Class::getSimpleName).orElse("") + "-" + context.getDisplayName();
        Path page = folder().resolve(name.replaceAll("[^A-Za-z0-9._-]+", "-") + ".html");
        try {
            Files.createDirectories(page.getParent());
            Files.writeString(page, html);
            return page.toAbsolutePath().toString();
        } catch (IOException error) {
            return "its page cannot be written: " + error;
        }
    }

    private static Path folder() {
        String named = System.getenv("KLAMM_TIMELINE");
        if (named != null) {
            return Path.of(named);
        }
        // Beside the reports of Maven or Gradle.
        for (String build : List.of("target", "build")) {
            if (Files.isDirectory(Path.of(build))) {
                return Path.of(build, "klamm-timeline");
            }
        }
        return Path.of(System.getProperty("java.io.tmpdir"), "klamm-timeline");
    }

    /** Stands in the report of a test that failed. */
    private static final class TimelineOfBroker extends Exception {
        private static final long serialVersionUID = 1;

        TimelineOfBroker(String text) {
            super("\n" + text, null, false, false);
        }

        @Override
        public String toString() {
            return "klamm: timeline" + getMessage();
        }
    }
}
