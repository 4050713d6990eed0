package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.opentest4j.TestAbortedException;

/**
 * Stands before Kafka's class of this name on the class path: its tests get a klamm instead of a cluster in the JVM.
 *
 * <p>A test that needs the inside of a broker is reported as aborted, with what it asked for.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String baseDisplayName;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String baseDisplayName, ClusterConfig config, boolean isCombined) {
        this.baseDisplayName = baseDisplayName;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocationIndex) {
        return baseDisplayName + " [" + invocationIndex + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        KlammCluster cluster = new KlammCluster(config);
        BeforeEachCallback begin = context -> {
            if (isCombined && config.clusterTypes().size() > 1) {
                throw new TestAbortedException("runs once: klamm has no controllers to combine brokers with");
            }
            if (config.isAutoStart()) {
                cluster.start();
            }
        };
        AfterTestExecutionCallback end = context -> cluster.stop();
        TestExecutionExceptionHandler failed = (context, failure) -> {
            throw cluster.outcome(failure);
        };
        return List.of(begin, end, failed, new ClusterInstanceParameterResolver(cluster));
    }
}
