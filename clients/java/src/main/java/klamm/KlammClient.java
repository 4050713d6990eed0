package klamm;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import klamm.Answers.About;
import klamm.Answers.Acl;
import klamm.Answers.ConsumedRecord;
import klamm.Answers.Coordinator;
import klamm.Answers.Fault;
import klamm.Answers.Group;
import klamm.Answers.Node;
import klamm.Answers.RecordedRequest;
import klamm.Answers.Timeline;
import klamm.Answers.User;
import klamm.Answers.WallTime;

/**
 * The operations of klamm's control API. {@code options} have the names that docs/reference/control.md lists; the server
 * refuses others by name. What it refuses is a {@link KlammException}.
 */
public class KlammClient {
    // The server limits waits to 60 s.
    private static final Duration TIMEOUT = Duration.ofSeconds(90);
    private static final Map<String, Object> NONE = Map.of();
    private final HttpClient http = HttpClient.newHttpClient();
    private String url;
    private String token;

    KlammClient() {}

    /** The URL and the token are those of a ready file. */
    public KlammClient(String url, String token) {
        connect(url, token);
    }

    final void connect(String url, String token) {
        this.url = url;
        this.token = token;
    }

    /** Called before each request. */
    void started() {}

    /** Sends a request. Options go to the query, of POST to the body. */
    public final Object call(String method, String path, Map<String, ?> options) {
        started();
        boolean isPost = method.equals("POST");
        String query = isPost || options.isEmpty() ? "" : "?" + query(options);
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path + query))
                .timeout(TIMEOUT)
                .header("Authorization", "Bearer " + token)
                .method(method, HttpRequest.BodyPublishers.ofString(isPost ? Json.write(options) : ""))
                .build();
        HttpResponse<String> response;
        try {
            response = http.send(request, HttpResponse.BodyHandlers.ofString(UTF_8));
        } catch (IOException error) {
            throw new KlammException(method + " " + path + ": " + error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new KlammException(method + " " + path + " was interrupted");
        }
        Object answer = Json.read(response.body());
        if (response.statusCode() != 200) {
            Map<String, Object> refused = Answer.object(answer);
            Number code = (Number) refused.getOrDefault("code", 0);
            String name = (String) refused.get("name");
            throw new KlammException((String) refused.get("error"), response.statusCode(), code.intValue(), name);
        }
        return answer;
    }

    private static String query(Map<String, ?> options) {
        return options.entrySet().stream()
                .map(each -> each.getKey() + "=" + URLEncoder.encode(String.valueOf(each.getValue()), UTF_8))
                .collect(Collectors.joining("&"));
    }

    private static String path(Object... words) {
        StringBuilder found = new StringBuilder();
        for (Object word : words) {
            String escaped = URLEncoder.encode(String.valueOf(word), UTF_8);
            found.append('/').append(escaped.replace("+", "%20").replace(".", "%2E"));
        }
        return found.toString();
    }

    private static Map<String, Object> with(Map<String, ?> options, Object... pairs) {
        Map<String, Object> found = new HashMap<>(options);
        for (int i = 0; i < pairs.length; i += 2) {
            found.put((String) pairs[i], pairs[i + 1]);
        }
        return found;
    }

    private static <T> Map<String, T> objectOf(Object answer, Function<Object, T> kind) {
        Map<String, T> found = new HashMap<>();
        Answer.object(answer).forEach((name, value) -> found.put(name, kind.apply(value)));
        return found;
    }

    private static Map<Integer, Integer> leadersOf(Object answer) {
        Map<Integer, Integer> found = new HashMap<>();
        Answer.object(answer).forEach((partition, node) -> found.put(Integer.valueOf(partition), intOf(node)));
        return found;
    }

    private static int intOf(Object number) {
        return ((Number) number).intValue();
    }

    public final About about() {
        return new About(call("GET", "/", NONE));
    }

    /** The description of the control API, by OpenAPI 3.1. */
    public final Map<String, Object> openapi() {
        return Answer.object(call("GET", "/openapi.json", NONE));
    }

    /** Deletes all topics and the groups without members, removes all faults, drops the recorded requests. */
    public final void reset() {
        call("POST", "/reset", NONE);
    }

    /** Moves the server's time forward. */
    public final WallTime advanceMs(double ms) {
        return new WallTime(call("POST", "/time", Map.of("advance_ms", ms)));
    }

    // ---- topics and records

    /** The topics, each with its number of partitions. */
    public final Map<String, Integer> topics() {
        return objectOf(call("GET", "/topics", NONE), KlammClient::intOf);
    }

    /** Creates a topic with one partition, and returns its name, which is a random one. */
    public final String createTopic() {
        return createTopic(NONE);
    }

    /** Creates a topic with one partition, and returns its name. */
    public final String createTopic(String name) {
        return createTopic(Map.of("name", name));
    }

    /** Options: name, partitions, configs. */
    public final String createTopic(Map<String, ?> options) {
        return (String) Answer.object(call("POST", "/topics", options)).get("name");
    }

    public final void deleteTopic(String topic) {
        call("DELETE", path("topics", topic), NONE);
    }

    /** Appends a record for each value, and returns the offset of the first. */
    public final long produce(String topic, String... values) {
        byte[][] contents = new byte[values.length][];
        for (int i = 0; i < values.length; i++) {
            contents[i] = values[i] == null ? null : values[i].getBytes(UTF_8);
        }
        return produce(topic, NONE, contents);
    }

    /** Options: key, partition, headers, timestamp_ms; key and headers in base64. */
    public final long produce(String topic, Map<String, ?> options, byte[]... values) {
        List<String> encoded = new ArrayList<>();
        for (byte[] value : values) {
            encoded.add(value == null ? null : Base64.getEncoder().encodeToString(value));
        }
        Map<String, Object> body = with(options, "values", encoded, "encoding", "base64");
        return ((Number) Answer.object(call("POST", path("topics", topic, "records"), body)).get("offset")).longValue();
    }

    /** The records of a topic. */
    public final List<ConsumedRecord> consume(String topic) {
        return consume(topic, NONE);
    }

    /** So many records of a topic, as soon as they are there. */
    public final List<ConsumedRecord> consume(String topic, int count) {
        return consume(topic, Map.of("count", count));
    }

    /** Options: count, timeout_s, isolation, partition, offset. */
    public final List<ConsumedRecord> consume(String topic, Map<String, ?> options) {
        Map<String, Object> query = with(options, "encoding", "base64");
        return Answer.each(call("GET", path("topics", topic, "records"), query), ConsumedRecord::new);
    }

    // ---- groups

    /** The groups, each with its state. */
    public final Map<String, String> groups() {
        return objectOf(call("GET", "/groups", NONE), String.class::cast);
    }

    public final Group group(String group) {
        return group(group, NONE);
    }

    /** A group, once it has a state, so many members, or a lag. Options: state, members, lag, timeout_s. */
    public final Group group(String group, Map<String, ?> options) {
        return new Group(call("GET", path("groups", group), options));
    }

    public final void deleteGroup(String group) {
        call("DELETE", path("groups", group), NONE);
    }

    // ---- faults

    /** The active rules of faults. */
    public final List<Fault> faults() {
        return Answer.each(call("GET", "/faults", NONE), Fault::new);
    }

    /** Adds a rule: requests that match it get a fault. Options: those of FaultRule, e.g. api, topic, count, error. */
    public final Fault addFault(String kind, Map<String, ?> options) {
        return new Fault(call("POST", "/faults", with(options, "kind", kind)));
    }

    /** Adds a fault of every kind, each at random with a small probability. Options: seed, times. */
    public final List<Fault> chaos(Map<String, ?> options) {
        return Answer.each(call("POST", "/faults/chaos", options), Fault::new);
    }

    public final Fault fault(String name) {
        return fault(name, NONE);
    }

    /** A rule, once it has fired that many times. Options: wait, timeout_s. */
    public final Fault fault(String name, Map<String, ?> options) {
        return new Fault(call("GET", path("faults", name), options));
    }

    public final Fault removeFault(String name) {
        return new Fault(call("DELETE", path("faults", name), NONE));
    }

    public final void clearFaults() {
        call("DELETE", "/faults", NONE);
    }

    // ---- nodes

    public final List<Node> nodes() {
        return Answer.each(call("GET", "/nodes", NONE), Node::new);
    }

    /** Stops or starts a node. */
    public final List<Node> setNode(int node, boolean running) {
        return Answer.each(call("POST", path("nodes", node), Map.of("running", running)), Node::new);
    }

    /** The leader of each partition of a topic, -1 for none. */
    public final Map<Integer, Integer> leaders(String topic) {
        return leadersOf(call("GET", path("leaders", topic), NONE));
    }

    /** Has a node lead a partition; null has none lead it. */
    public final Map<Integer, Integer> moveLeader(String topic, int partition, Integer node) {
        return leadersOf(call("POST", path("leaders", topic), with(NONE, "partition", partition, "node", node)));
    }

    /** The node that coordinates a group, or the transactions of an id. */
    public final Coordinator coordinator(String key) {
        return new Coordinator(call("GET", path("coordinators", key), NONE));
    }

    public final Coordinator moveCoordinator(String key, int node) {
        return new Coordinator(call("POST", path("coordinators", key), Map.of("node", node)));
    }

    // ---- what clients did

    /** The requests of clients that have ended, oldest first. */
    public final List<RecordedRequest> requests() {
        return requests(NONE);
    }

    /** Options: api, count, timeout_s. */
    public final List<RecordedRequest> requests(Map<String, ?> options) {
        return Answer.each(call("GET", "/requests", options), RecordedRequest::new);
    }

    /** Drops the recorded requests; the timeline begins here. */
    public final void forgetRequests() {
        call("DELETE", "/requests", NONE);
    }

    /** Options: title, failure, columns. */
    public final Timeline timeline(Map<String, ?> options) {
        return new Timeline(call("GET", "/timeline", options));
    }

    // ---- users

    /** Makes a user with the password "secret". */
    public final User addUser(String name) {
        return addUser(name, NONE);
    }

    /** Options: password. */
    public final User addUser(String name, Map<String, ?> options) {
        return new User(call("POST", "/users", with(options, "name", name)));
    }

    /** The rules of access. Options: user. */
    public final List<Acl> acls(Map<String, ?> options) {
        return Answer.each(call("GET", "/acls", options), Acl::new);
    }

    /** Lets a user do something, e.g. {@code allow("alice", "READ", "TOPIC", "orders")}. */
    public final Acl allow(String user, String operation, String resourceType, String name) {
        return allow(user, operation, resourceType, name, NONE);
    }

    /** Options: prefix, host. */
    public final Acl allow(String user, String operation, String resourceType, String name, Map<String, ?> options) {
        return new Acl(call("POST", "/acls/allow", access(user, operation, resourceType, name, options)));
    }

    /** Keeps a user from something, whatever allows it. */
    public final Acl deny(String user, String operation, String resourceType, String name) {
        return deny(user, operation, resourceType, name, NONE);
    }

    /** Options: prefix, host. */
    public final Acl deny(String user, String operation, String resourceType, String name, Map<String, ?> options) {
        return new Acl(call("POST", "/acls/deny", access(user, operation, resourceType, name, options)));
    }

    private static Map<String, Object> access(
            String user, String operation, String resourceType, String name, Map<String, ?> options) {
        return with(options, "user", user, "operation", operation, "resource_type", resourceType, "name", name);
    }

    /** Takes rules of access away. Options: user. */
    public final void clearAcls(Map<String, ?> options) {
        call("DELETE", "/acls", options);
    }

    /** What a client library needs to connect, in its own words. Options: user. */
    public final Map<String, Object> clientSettings(String client, Map<String, ?> options) {
        return Answer.object(call("GET", path("client-settings", client), options));
    }
}
