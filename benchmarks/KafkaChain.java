import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Runs Kafka Connect's own transforms in one thread, over the records of bench_transforms.py.
 *
 * <p>Arguments: how many records, then for each step its class and key=value pairs, each step
 * ended by a semicolon. Prints the seconds that the chain took, without making the records.
 */
public final class KafkaChain {
  private static final int PIECE = 10_000;
  private static final Schema ADDRESS =
      SchemaBuilder.struct().field("city", Schema.STRING_SCHEMA).field("zip", Schema.INT32_SCHEMA)
          .build();
  private static final Schema ROW =
      SchemaBuilder.struct()
          .field("id", Schema.INT64_SCHEMA)
          .field("name", Schema.STRING_SCHEMA)
          .field("card", Schema.STRING_SCHEMA)
          .field("amount", Schema.STRING_SCHEMA)
          .field("qty", Schema.INT32_SCHEMA)
          .field("at", Timestamp.SCHEMA)
          .field("secret", Schema.STRING_SCHEMA)
          .field("address", ADDRESS)
          .build();

  public static void main(String[] arguments) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    long rows = Long.parseLong(arguments[0]);
    List<Transformation<SourceRecord>> chain = chain(arguments);
    run(chain, Math.min(rows, 500_000)); // warm, as Spark is
    SourceRecord[] last = new SourceRecord[1];
    double seconds = run(chain, rows, last);
    System.out.println(seconds);
    System.out.println(last[0].topic() + " " + last[0].key() + " " + last[0].value());
  }

  @SuppressWarnings("unchecked")
  private static List<Transformation<SourceRecord>> chain(String[] arguments) throws Exception {
    List<Transformation<SourceRecord>> chain = new ArrayList<>();
    for (int place = 1; place < arguments.length; place++) {
      Object made = Class.forName(arguments[place]).getDeclaredConstructor().newInstance();
      Map<String, String> config = new HashMap<>();
      for (place++; !arguments[place].equals(";"); place++) {
        String[] pair = arguments[place].split("=", 2);
        config.put(pair[0], pair[1]);
      }
      Transformation<SourceRecord> step = (Transformation<SourceRecord>) made;
      step.configure(config);
      chain.add(step);
    }
    return chain;
  }

  private static void run(List<Transformation<SourceRecord>> chain, long rows) {
    run(chain, rows, new SourceRecord[1]);
  }

  private static double run(
      List<Transformation<SourceRecord>> chain, long rows, SourceRecord[] last) {
    long nanos = 0;
    for (long start = 0; start < rows; start += PIECE) {
      List<SourceRecord> records = records(start, Math.min(rows, start + PIECE));
      long began = System.nanoTime();
      for (SourceRecord given : records) {
        SourceRecord record = given;
        for (Transformation<SourceRecord> step : chain) {
          record = step.apply(record);
        }
        last[0] = record;
      }
      nanos += System.nanoTime() - began;
    }
    return nanos / 1e9;
  }

  private static List<SourceRecord> records(long start, long end) {
    List<SourceRecord> records = new ArrayList<>();
    for (long id = start; id < end; id++) {
      Struct address = new Struct(ADDRESS).put("city", "city " + id % 50).put("zip", (int) (id % 9999));
      Struct row =
          new Struct(ROW)
              .put("id", id)
              .put("name", "customer " + id % 1000)
              .put("card", "4111-" + id % 10_000)
              .put("amount", id % 1000 + ".25")
              .put("qty", (int) (id % 100))
              .put("at", new Date(1_600_000_000_000L + id * 1000))
              .put("secret", "s" + id % 7)
              .put("address", address);
      records.add(new SourceRecord(Map.of(), Map.of(), "orders", null, null, null, ROW, row, id, null));
    }
    return records;
  }
}
