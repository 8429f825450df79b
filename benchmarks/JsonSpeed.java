import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/** Times Kafka Connect's JSON converter over the lines of a file, in one thread. */
public class JsonSpeed {
  private static final int ROUNDS = 8;

  public static void main(String[] arguments) throws Exception {
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", arguments[1], "converter.type", "value"), false);
    List<byte[]> lines =
        Files.readAllLines(Path.of(arguments[0])).stream()
            .map(line -> line.getBytes(StandardCharsets.UTF_8))
            .toList();
    SchemaAndValue[] values = new SchemaAndValue[lines.size()];
    double decode = Double.MAX_VALUE;
    double encode = Double.MAX_VALUE;
    long written = 0;
    for (int round = 0; round < ROUNDS; round++) {
      long began = System.nanoTime();
      for (int row = 0; row < values.length; row++) {
        values[row] = converter.toConnectData("t", lines.get(row));
      }
      decode = Math.min(decode, (System.nanoTime() - began) / 1e9);
      began = System.nanoTime();
      for (SchemaAndValue value : values) {
        written += converter.fromConnectData("t", value.schema(), value.value()).length;
      }
      encode = Math.min(encode, (System.nanoTime() - began) / 1e9);
    }
    System.out.printf("{\"decode_s\": %f, \"encode_s\": %f, \"bytes\": %d}%n", decode, encode, written);
  }
}
