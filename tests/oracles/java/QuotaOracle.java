import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Answers, line by line, what Kafka's Rate and TokenBucket measure. A line is "SAMPLES WINDOW_MS BOUND EVENT...", an
 * event "TIME_MS:VALUE" (record, then measure) or "TIME_MS" (measure); the answer has "RATE/THROTTLE_MS/TOKENS" of each.
 */
public class QuotaOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            double bound = Double.parseDouble(words[2]);
            MetricConfig config = new MetricConfig()
                .samples(Integer.parseInt(words[0]))
                .timeWindow(Long.parseLong(words[1]), TimeUnit.MILLISECONDS)
                .quota(new Quota(bound, true));
            Rate rate = new Rate();
            TokenBucket bucket = new TokenBucket();
            StringBuilder answer = new StringBuilder();
            for (int i = 3; i < words.length; i++) {
                String[] event = words[i].split(":");
                long now = Long.parseLong(event[0]);
                if (event.length == 2) {
                    rate.record(config, Double.parseDouble(event[1]), now);
                    bucket.record(config, Double.parseDouble(event[1]), now);
                }
                double value = rate.measure(config, now);
                long throttle = value <= bound
                    ? 0 : Math.round((value - bound) / bound * rate.windowSize(config, now));
                answer.append(value).append('/').append(throttle).append('/').append(bucket.measure(config, now)).append(' ');
            }
            System.out.println(answer.toString().trim());
        }
    }
}
