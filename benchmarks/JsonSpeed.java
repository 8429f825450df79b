import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/** Times Kafka Connect's JSON converter over the lines of a file, in one thread. */
public class JsonSpeed {
  private static final int COLD = 3;
  private static final int ROUNDS = COLD + 5;

  public static void main(String[] arguments) throws Exception {
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", arguments[1], "converter.type", "value"), false);
    List<byte[]> lines =
        Files.readAllLines(Path.of(arguments[0])).stream()
            .map(line -> line.getBytes(StandardCharsets.UTF_8))
            .toList();
    SchemaAndValue[] values = new SchemaAndValue[lines.size()];
    double[] decode = new double[ROUNDS];
    double[] encode = new double[ROUNDS];
    long written = 0;
    for (int round = 0; round < ROUNDS; round++) {
      long began = System.nanoTime();
      for (int row = 0; row < values.length; row++) {
        values[row] = converter.toConnectData("t", lines.get(row));
      }
      decode[round] = (System.nanoTime() - began) / 1e9;
      began = System.nanoTime();
      for (SchemaAndValue value : values) {
        written += converter.fromConnectData("t", value.schema(), value.value()).length;
      }
      encode[round] = (System.nanoTime() - began) / 1e9;
    }
    System.out.printf("{\"decode_s\": %f, \"encode_s\": %f, \"bytes\": %d}%n", median(decode), median(encode), written);
  }

  /** Leaves out the first rounds, which are not warm. */
  private static double median(double[] seconds) {
    double[] warm = Arrays.copyOfRange(seconds, COLD, seconds.length);
    Arrays.sort(warm);
    return warm[warm.length / 2];
  }
}
