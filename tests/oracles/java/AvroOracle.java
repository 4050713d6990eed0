import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.Incompatibility;

/** Reads pairs of schemas with a tab in between; prints their texts, and why the first cannot read data of the second. */
public class AvroOracle {
  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] both = line.split("\t");
      Schema reader = parsed(both[0]);
      Schema writer = parsed(both[1]);
      String found = "";
      if (reader != null && writer != null) {
        found = problems(reader, writer);
      }
      System.out.println(reader + "\t" + writer + "\t" + found);
    }
  }

  private static String problems(Schema reader, Schema writer) {
    try {
      List<Incompatibility> all =
          SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult().getIncompatibilities();
      return all.stream()
          .map(one -> one.getType() + "|" + one.getLocation() + "|" + one.getMessage())
          .collect(Collectors.joining(";"));
    } catch (RuntimeException error) {
      return "refused";
    }
  }

  private static Schema parsed(String text) {
    try {
      Schema.Parser parser = new Schema.Parser();
      parser.setValidateDefaults(false);
      return parser.parse(text);
    } catch (RuntimeException error) {
      return null;
    }
  }
}
