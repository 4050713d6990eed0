import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs the tools that come with Apache Kafka, one after the other in one JVM: starting takes most of a tool's time.
 *
 * <p>A request is a count and so many texts, the tool's class and its arguments. The answer is an exit code, and what the
 * tool has written to standard output and to standard error, each after its size.
 */
public class Tools {
    /** Ends a tool, as it may not end the JVM. Tools catch it as they catch everything: what follows counts no more. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream output = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream errors = new ByteArrayOutputStream();
    private static Integer code;

    public static void main(String[] arguments) throws IOException {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        System.setIn(InputStream.nullInputStream());
        Exit.setExitProcedure((status, message) -> {
            end(status);
            throw new Ended();
        });
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int at = 0; at < words.length; at++) {
                words[at] = text(requests);
            }
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.writeInt(code);
            for (ByteArrayOutputStream written : new ByteArrayOutputStream[] {output, errors}) {
                answers.writeInt(written.size());
                written.writeTo(answers);
            }
            answers.flush();
        }
    }

    /** As `java` does it: 1, and the stack trace, for an exception that leaves `main`. */
    private static void run(String tool, String[] arguments) {
        output.reset();
        errors.reset();
        code = null;
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0);
        } catch (InvocationTargetException raised) {
            raised.getCause().printStackTrace();
            end(1);
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            end(1);
        }
    }

    private static void end(int status) {
        System.out.flush();
        System.err.flush();
        if (code == null) {
            code = status;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
    }

    private static String text(DataInputStream requests) throws IOException {
        byte[] bytes = new byte[requests.readInt()];
        requests.readFully(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
