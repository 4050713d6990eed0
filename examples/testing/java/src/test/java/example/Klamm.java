package example;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A broker for tests, until it is closed. */
final class Klamm implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final HttpClient http = HttpClient.newHttpClient();
    private final Process process;
    private final JsonNode ready;

    Klamm() throws Exception {
        Path file = Files.createTempDirectory("klamm-").resolve("ready.json");
        String command = System.getenv().getOrDefault("KLAMM", "klamm");
        List<String> words = new ArrayList<>(List.of(command.split(" ")));
        words.addAll(List.of("serve", "--ephemeral", "--ready-file", file.toString()));
        process = new ProcessBuilder(words)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        for (int waited = 0; !Files.exists(file); waited++) {
            if (waited > 3000 || !process.isAlive()) {
                process.destroy();
                throw new IllegalStateException("the broker does not start");
            }
            Thread.sleep(10);
        }
        ready = JSON.readTree(file.toFile());
    }

    String bootstrap() {
        return ready.get("listeners").get("default").asText();
    }

    /** Sends a request to the control API; {@code body} is JSON, or empty. */
    JsonNode call(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(ready.get("control").asText() + path))
                .header("Authorization", "Bearer " + ready.get("token").asText())
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalStateException(method + " " + path + ": " + response.body());
        }
        return JSON.readTree(response.body());
    }

    @Override
    public void close() throws Exception {
        process.destroy();
        process.waitFor(20, TimeUnit.SECONDS);
    }
}
