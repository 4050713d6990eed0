import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Processes a topic exactly once: BOOTSTRAP ID INPUT OUTPUT STATE_DIRECTORY GROUP_PROTOCOL MODES [NAME=VALUE ...].
 * The rest are more settings. MODES are, with commas between them:
 *
 * counts: how often each word of the lines of INPUT occurs, one record for each word of each line.
 * tumbling, sessions: how often each key of INPUT occurs in a window of 10 s, and in a session with gaps below 5 s.
 * joins: INPUT with INPUT-other, by key and time.
 *
 * No update is held back in a cache. Prints its states, and how many records of a store it has read back. A line of
 * its input is a word whose count and places are printed. It ends when its input does.
 */
public final class StreamsApplication {
    private static final String STORE = "counts";

    public static void main(String[] arguments) throws Exception {
        KafkaStreams streams = new KafkaStreams(
                topology(arguments[2], arguments[3], List.of(arguments[6].split(","))).build(), settings(arguments));
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.start();
        BufferedReader words = new BufferedReader(new InputStreamReader(System.in));
        for (String word = words.readLine(); word != null; word = words.readLine()) {
            System.out.println(found(streams, word));
        }
        streams.close();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[5]);
        if (arguments[5].equals("classic")) {
            settings.put("consumer.session.timeout.ms", 6000);
            settings.put("consumer.heartbeat.interval.ms", 1000);
        }
        for (String each : Arrays.asList(arguments).subList(7, arguments.length)) {
            String[] parts = each.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        return settings;
    }

    private static StreamsBuilder topology(String input, String output, List<String> modes) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(input);
        if (modes.contains("counts")) {
            lines.flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
                    .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                    .count(Materialized.as(STORE))
                    .toStream()
                    .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        }
        if (modes.contains("tumbling")) {
            written(lines.groupByKey()
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofHours(1)))
                    .count()
                    .toStream(), output + "-tumbling");
        }
        if (modes.contains("sessions")) {
            written(lines.groupByKey()
                    .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), Duration.ofHours(1)))
                    .count()
                    .toStream(), output + "-sessions");
        }
        if (modes.contains("joins")) {
            lines.join(builder.<String, String>stream(input + "-other"), (one, other) -> one + "+" + other,
                            JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofHours(1)))
                    .to(output + "-joins");
        }
        return builder;
    }

    /** As KEY@START-END in milliseconds, and the count as text; a session that was merged with another is written as null. */
    private static void written(KStream<Windowed<String>, Long> counts, String topic) {
        counts.selectKey((window, count) -> window.key() + "@" + window.window().start() + "-"
                        + window.window().end())
                .mapValues(count -> count == null ? null : count.toString())
                .to(topic);
    }

    private static String found(KafkaStreams streams, String word) {
        try {
            KeyQueryMetadata places = streams.queryMetadataForKey(STORE, word, new StringSerializer());
            ReadOnlyKeyValueStore<String, Long> store = streams.store(StoreQueryParameters.fromNameAndType(
                    STORE, QueryableStoreTypes.<String, Long>keyValueStore()).enableStaleStores());
            return "FOUND " + Map.of("port", places.activeHost().port(), "copies", places.standbyHosts().size(),
                    "count", String.valueOf(store.get(word)));
        } catch (RuntimeException error) {
            return "FOUND " + error.getClass().getSimpleName();
        }
    }

    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) { }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            System.out.println("RESTORED " + store + " " + total);
        }
    }
}
