package org.apache.kafka.common.test.junit;

import static net.bytebuddy.matcher.ElementMatchers.named;

import java.io.File;
import java.io.IOException;
import java.util.Map;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.pool.TypePool;

/**
 * Writes those classes of Kafka that start the clusters of its tests, changed: clients get the address of the gateway.
 *
 * <p>The argument is a folder that stands before Kafka's jars on the class path.
 */
public final class GatewayClasses {
    /** The class, and its method that ends the cluster. */
    private static final Map<String, String> CLUSTERS = Map.of(
        "org.apache.kafka.common.test.junit.RaftClusterInvocationContext$RaftClusterInstance", "stop",
        "kafka.integration.KafkaServerTestHarness", "tearDown");

    private GatewayClasses() {}

    public static void main(String[] arguments) throws IOException {
        ClassFileLocator files = ClassFileLocator.ForClassLoader.ofSystemLoader();
        TypePool types = TypePool.Default.ofSystemLoader();
        for (Map.Entry<String, String> cluster : CLUSTERS.entrySet()) {
            new ByteBuddy().redefine(types.describe(cluster.getKey()).resolve(), files)
                .visit(Advice.to(Address.class, files).on(named("bootstrapServers")))
                .visit(Advice.to(End.class, files).on(named(cluster.getValue())))
                .make().saveIn(new File(arguments[0]));
        }
    }

    private static final class Address {
        @Advice.OnMethodExit
        static void exit(@Advice.Return(readOnly = false) String bootstrap) {
            bootstrap = Gateway.before(bootstrap);
        }
    }

    private static final class End {
        @Advice.OnMethodEnter
        static void enter() {
            Gateway.stop();
        }
    }
}
