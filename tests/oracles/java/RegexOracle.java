import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Lines of pattern, replacement and texts, each in hexadecimal UTF-8; answers per text "matches/replaced", or "error". */
final class RegexOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split(" ", -1);
            StringBuilder answer = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(text(fields[0]));
                for (int i = 2; i < fields.length; i++) {
                    Matcher matcher = pattern.matcher(text(fields[i]));
                    boolean matches = matcher.matches();
                    matcher.reset();
                    String replaced = matcher.replaceAll(text(fields[1]));
                    answer.append(i > 2 ? " " : "").append(matches).append('/').append(hex(replaced));
                }
            } catch (PatternSyntaxException error) {
                answer = new StringBuilder("error");
            }
            output.println(answer);
        }
    }

    private static String text(String hexadecimal) {
        return new String(HexFormat.of().parseHex(hexadecimal), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
