import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * Answers, line by line on standard output, what Kafka's own classes make of a message on standard input.
 * "request|response KEY VERSION HEX" gives "HEX JSON" of the decoded and encoded message;
 * "error KEY VERSION CODE TEXT HEX" gives the HEX of the error response to a request, or "none"; TEXT is the exception's
 * message, or "-" for the usual one.
 */
public class MessageOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ", -1);
                answer = words[0].equals("error") ? error(words) : message(words);
            } catch (Throwable failure) {
                answer = "failed: " + failure;
            }
            out.write(answer.replace("\n", " "));
            out.newLine();
        }
        out.flush();
    }

    private static String message(String[] words) throws Exception {
        ApiKeys key = ApiKeys.forId(Integer.parseInt(words[1]));
        short version = Short.parseShort(words[2]);
        ApiMessage message = words[0].equals("request") ? key.messageType.newRequest() : key.messageType.newResponse();
        ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "failed: " + buffer.remaining() + " bytes are left";
        }
        return HexFormat.of().formatHex(bytes(message, version)) + " " + json(message, version);
    }

    private static byte[] bytes(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static String json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        for (Method method : converter.getMethods()) {
            if (method.getName().equals("write") && method.getParameterCount() == 2) {
                return method.invoke(null, message, version).toString();
            }
        }
        throw new IllegalStateException(converter.getName());
    }

    private static String error(String[] words) {
        ApiKeys key = ApiKeys.forId(Integer.parseInt(words[1]));
        short version = Short.parseShort(words[2]);
        Errors error = Errors.forCode(Short.parseShort(words[3]));
        Readable body = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(words[5])));
        AbstractRequest request = AbstractRequest.parseRequest(key, version, body).request;
        Throwable exception = words[4].equals("-") ? error.exception() : error.exception(words[4]);
        AbstractResponse response = request.getErrorResponse(7, exception);
        return response == null ? "none" : HexFormat.of().formatHex(bytes(response.data(), version));
    }
}
