import java.lang.reflect.Method;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints key, oldest and latest version of each API that this release offers on a listener of the type that is given. */
public class PrintVersions {
    public static void main(String[] arguments) throws Exception {
        for (ApiKeys api : ApiKeys.apisForListener(ListenerType.valueOf(arguments[0]))) {
            short latest = latest(api);
            if (latest >= api.oldestVersion())
                System.out.println(api.id + " " + api.oldestVersion() + " " + latest);
        }
    }

    private static short latest(ApiKeys api) throws Exception {
        try {
            Method ofStable = ApiKeys.class.getMethod("latestVersion", boolean.class);
            return (Short) ofStable.invoke(api, false);
        } catch (NoSuchMethodException early) {
            return api.latestVersion();
        }
    }
}
