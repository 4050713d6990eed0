package org.apache.kafka.common.test.junit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** A {@code klamm serve} with one or more nodes, whose ports and data last as long as this object. */
public final class KlammProcess {
    static final String HOST = "127.0.0.1";
    private static final int START_TIMEOUT_SECONDS = 120;
    private static final int STOP_TIMEOUT_SECONDS = 60;
    private static final int HTTP_OK = 200;
    private static final ObjectMapper JSON = new ObjectMapper();

    static {
        // Its thread would be taken for a leak of the test.
        System.setProperty("http.keepAlive", "false");
    }

    private final Path folder;
    private final int nodes;
    private final int firstPort;
    private final Map<String, String> settings;
    private final List<String> options;
    private final Set<Integer> running = new TreeSet<>();
    private Process process;
    private JsonNode ready;

    /** With further {@code options} of {@code klamm serve}; nodes are stopped and started with {@code --ephemeral} only. */
    KlammProcess(int nodes, Map<String, String> settings, String... options) throws IOException {
        this.folder = Files.createTempDirectory(Path.of(System.getProperty("klamm.folder")), "cluster");
        this.nodes = nodes;
        this.settings = settings;
        this.options = List.of(options);
        this.firstPort = lastingPorts(nodes);
    }

    /** The first of consecutive ports that no outgoing connection gets. */
    static int lastingPorts(int count) {
        while (true) {
            int first = ThreadLocalRandom.current().nextInt(10_000, 30_000);
            try {
                for (int port = first; port < first + count; port++) {
                    new ServerSocket(port, 1, InetAddress.getByName(HOST)).close();
                }
                return first;
            } catch (IOException taken) {
                continue;
            }
        }
    }

    public String bootstrapServers() {
        List<String> addresses = new ArrayList<>();
        for (int node = 0; node < nodes; node++) {
            addresses.add(HOST + ":" + port(node));
        }
        return String.join(",", addresses);
    }

    public int port(int node) {
        return firstPort + node;
    }

    public Set<Integer> running() {
        return running;
    }

    public void startNode(int node) throws IOException, InterruptedException {
        if (process == null || !process.isAlive()) {
            start();
            for (int other = 0; other < nodes; other++) {
                if (other != node) {
                    switchNode(other, false);
                }
            }
        } else {
            switchNode(node, true);
        }
    }

    /** Nothing runs once the last node has stopped. */
    public void stopNode(int node) throws IOException, InterruptedException {
        if (running.equals(Set.of(node))) {
            stop();
        } else if (running.contains(node)) {
            switchNode(node, false);
        }
    }

    public void start() throws IOException, InterruptedException {
        File readyFile = folder.resolve("ready.json").toFile();
        Files.deleteIfExists(readyFile.toPath());
        List<String> command = new ArrayList<>(List.of(System.getProperty("klamm.python"), "-m", "klamm", "serve"));
        command.addAll(options);
        command.addAll(List.of("--bind", HOST + ":" + firstPort, "--data-dir", folder + "/data"));
        command.addAll(List.of("--ready-file", readyFile.getPath()));
        settings.forEach((key, value) -> command.addAll(List.of("--set", key + "=" + value)));
        File log = folder.resolve("klamm.log").toFile();
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        process = builder.redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_TIMEOUT_SECONDS);
        while (!readyFile.exists()) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                process.destroyForcibly();
                throw new IOException("klamm has not started:\n" + Files.readString(log.toPath()));
            }
            Thread.sleep(10);
        }
        ready = JSON.readTree(readyFile);
        for (int node = 0; node < nodes; node++) {
            running.add(node);
        }
    }

    public void stop() throws InterruptedException {
        running.clear();
        if (process == null || !process.isAlive()) {
            return;
        }
        process.destroy();
        if (!process.waitFor(STOP_TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new AssertionError("klamm has not stopped in " + STOP_TIMEOUT_SECONDS + " s");
        }
    }

    void kill() {
        process.destroyForcibly();
    }

    private void switchNode(int node, boolean on) throws IOException {
        URI uri = URI.create(ready.get("control").asText() + "/nodes/" + node);
        HttpURLConnection connection = (HttpURLConnection) uri.toURL().openConnection();
        connection.setRequestMethod("POST");
        connection.setRequestProperty("Authorization", "Bearer " + ready.get("token").asText());
        connection.setRequestProperty("Content-Type", "application/json");
        connection.setDoOutput(true);
        connection.getOutputStream().write(("{\"running\": " + on + "}").getBytes(StandardCharsets.UTF_8));
        if (connection.getResponseCode() != HTTP_OK) {
            throw new IOException(uri + " answers " + connection.getResponseCode());
        }
        connection.getInputStream().readAllBytes();
        connection.disconnect();
        if (on) {
            running.add(node);
        } else {
            running.remove(node);
        }
    }
}
