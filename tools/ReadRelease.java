import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints the APIs, error codes, features and configs of the release on the class path, a line of tabs for each. */
public class ReadRelease {
    private static final String[][] CONFIGS = {
        {"topic", "org.apache.kafka.storage.internals.log.LogConfig", "CONFIG"},
        {"group", "org.apache.kafka.coordinator.group.GroupConfig", ""},
        {"broker", "org.apache.kafka.server.config.AbstractKafkaConfig", "CONFIG_DEF"},
    };

    public static void main(String[] arguments) throws Exception {
        for (ApiKeys api : ApiKeys.apisForListener(ListenerType.BROKER)) {
            short latest = api.latestVersion(false);
            if (latest >= api.oldestVersion()) print("api", api.name, api.id, api.oldestVersion(), latest);
        }
        for (Errors error : Errors.values()) print("error", error.name(), error.code());
        MetadataVersion metadata = MetadataVersion.latestProduction();
        print("feature", MetadataVersion.FEATURE_NAME, MetadataVersion.MINIMUM_VERSION.featureLevel(), metadata.featureLevel(),
            metadata.featureLevel());
        for (Feature feature : Feature.PRODUCTION_FEATURES)
            print("feature", feature.featureName(), feature.minimumProduction(), feature.latestProduction(), feature.defaultLevel(metadata));
        for (String[] config : CONFIGS) {
            for (ConfigDef.ConfigKey key : definition(config[1], config[2]).configKeys().values()) {
                if (key.internalConfig) continue;
                boolean required = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE;
                String value = required ? "" : ConfigDef.convertToString(key.defaultValue, key.type);
                print("config", config[0] + ":" + key.name, key.type, String.valueOf(value), String.valueOf(key.validator));
            }
        }
    }

    private static ConfigDef definition(String owner, String field) throws Exception {
        for (var each : Class.forName(owner).getDeclaredFields()) {
            boolean holds = ConfigDef.class.isAssignableFrom(each.getType()) && Modifier.isStatic(each.getModifiers());
            if (holds && (field.isEmpty() || each.getName().equals(field))) {
                each.setAccessible(true);
                return (ConfigDef) each.get(null);
            }
        }
        throw new IllegalStateException(owner + " has no definition of configs");
    }

    private static void print(Object... parts) {
        List<String> texts = new ArrayList<>();
        for (Object part : parts) texts.add(String.valueOf(part).replaceAll("\\s+", " "));
        System.out.println(String.join("\t", texts));
    }
}
