package klamm;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.List;
import java.util.Map;

/** What the operations of a {@link KlammClient} return. The members are described in docs/reference/control.md. */
public final class Answers {
    private Answers() {}

    /** A server and its addresses. */
    public static final class About extends Answer {
        About(Object members) {
            super(members);
        }

        public String version() {
            return text("version");
        }

        public String bootstrap() {
            return text("bootstrap");
        }

        public Map<String, String> listeners() {
            return texts("listeners");
        }
    }

    /** The time of the server, in milliseconds since 1970. */
    public static final class WallTime extends Answer {
        WallTime(Object members) {
            super(members);
        }

        public long wallMs() {
            return number("wall_ms");
        }
    }

    /** A header of a record. */
    public static final class Header {
        public final String name;
        public final byte[] value;

        Header(Object pair) {
            name = (String) ((List<?>) pair).get(0);
            value = Answer.decoded(((List<?>) pair).get(1));
        }
    }

    /** A record of a topic. */
    public static final class ConsumedRecord extends Answer {
        ConsumedRecord(Object members) {
            super(members);
        }

        public int partition() {
            return (int) number("partition");
        }

        public long offset() {
            return number("offset");
        }

        public long timestampMs() {
            return number("timestamp_ms");
        }

        public byte[] key() {
            return bytes("key");
        }

        public byte[] value() {
            return bytes("value");
        }

        /** The value as UTF-8. */
        public String valueAsString() {
            return value() == null ? null : new String(value(), UTF_8);
        }

        /** The key as UTF-8. */
        public String keyAsString() {
            return key() == null ? null : new String(key(), UTF_8);
        }

        public List<Header> headers() {
            return list("headers", Header::new);
        }
    }

    /** A group of consumers. */
    public static final class Group extends Answer {
        Group(Object members) {
            super(members);
        }

        public String name() {
            return text("name");
        }

        public String state() {
            return text("state");
        }

        public List<GroupMember> members() {
            return list("members", GroupMember::new);
        }

        public List<GroupPartition> partitions() {
            return list("partitions", GroupPartition::new);
        }

        public long lag() {
            return number("lag");
        }
    }

    /** A member of a group. */
    public static final class GroupMember extends Answer {
        GroupMember(Object members) {
            super(members);
        }

        public String memberId() {
            return text("member_id");
        }

        public String clientId() {
            return text("client_id");
        }

        public String instanceId() {
            return text("instance_id");
        }

        public List<AssignedPartition> partitions() {
            return list("partitions", AssignedPartition::new);
        }
    }

    /** A partition that is assigned to a member of a group. */
    public static final class AssignedPartition extends Answer {
        AssignedPartition(Object members) {
            super(members);
        }

        public String topic() {
            return text("topic");
        }

        public int partition() {
            return (int) number("partition");
        }
    }

    /** A partition of a group. */
    public static final class GroupPartition extends Answer {
        GroupPartition(Object members) {
            super(members);
        }

        public String topic() {
            return text("topic");
        }

        public int partition() {
            return (int) number("partition");
        }

        /** The committed offset; null if there is none. */
        public Long committed() {
            return (Long) any("committed");
        }

        public long lag() {
            return number("lag");
        }
    }

    /** An active rule of faults. */
    public static final class Fault extends Answer {
        Fault(Object members) {
            super(members);
        }

        public String name() {
            return text("name");
        }

        public String kind() {
            return text("kind");
        }

        /** How many requests got the fault. */
        public int fired() {
            return (int) number("fired");
        }
    }

    /** A node of the broker. */
    public static final class Node extends Answer {
        Node(Object members) {
            super(members);
        }

        public int id() {
            return (int) number("id");
        }

        public boolean running() {
            return (Boolean) any("running");
        }

        public int epoch() {
            return (int) number("epoch");
        }

        public Map<String, String> listeners() {
            return texts("listeners");
        }

        public int leads() {
            return (int) number("leads");
        }
    }

    /** The node that coordinates a group or the transactions of an id. */
    public static final class Coordinator extends Answer {
        Coordinator(Object members) {
            super(members);
        }

        public int node() {
            return (int) number("node");
        }
    }

    /** A request of a client that has ended, with its answer. */
    public static final class RecordedRequest extends Answer {
        RecordedRequest(Object members) {
            super(members);
        }

        public String api() {
            return text("api");
        }

        public int version() {
            return (int) number("version");
        }

        public String clientId() {
            return text("client_id");
        }

        public int correlationId() {
            return (int) number("correlation_id");
        }

        public String listener() {
            return text("listener");
        }

        public String connectionId() {
            return text("connection_id");
        }

        public String principal() {
            return text("principal");
        }

        public long endedMs() {
            return number("ended_ms");
        }

        public double durationMs() {
            return ((Number) any("duration_ms")).doubleValue();
        }

        public String outcome() {
            return text("outcome");
        }

        public int errorCode() {
            return (int) number("error_code");
        }

        public Map<String, Object> request() {
            return object(any("request"));
        }

        public Map<String, Object> response() {
            return object(any("response"));
        }

        public byte[] raw() {
            return bytes("raw");
        }
    }

    /** What happened, for a terminal and as a page; both are empty if nothing did. */
    public static final class Timeline extends Answer {
        Timeline(Object members) {
            super(members);
        }

        public String text() {
            return text("text");
        }

        public String html() {
            return text("html");
        }
    }

    /** A user of the listener with TLS and SCRAM. */
    public static final class User extends Answer {
        User(Object members) {
            super(members);
        }

        public String name() {
            return text("name");
        }

        public String password() {
            return text("password");
        }
    }

    /** A rule of an access control list, in Kafka's words. */
    public static final class Acl extends Answer {
        Acl(Object members) {
            super(members);
        }

        public String principal() {
            return text("principal");
        }

        public String host() {
            return text("host");
        }

        public String operation() {
            return text("operation");
        }

        public String permission() {
            return text("permission");
        }

        public String resourceType() {
            return text("resource_type");
        }

        public String name() {
            return text("name");
        }

        public String patternType() {
            return text("pattern_type");
        }
    }
}
