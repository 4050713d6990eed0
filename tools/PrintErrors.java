import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints code, name and whether a client may try again, for each of Kafka's error codes. */
public class PrintErrors {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            System.out.println(error.code() + " " + error.name() + " " + (error.exception() instanceof RetriableException));
        }
    }
}
