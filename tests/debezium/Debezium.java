import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedReader;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's engine until standard input ends.
 *
 * <p>The first line of the input is {"properties", "handed"}. With "handed": "events", each event
 * becomes a line {"topic", "key", "value"}. With "json" or "connect", the events are only counted,
 * as JSON texts without schemas or as Connect's structs: once there are as many as "count" says, a
 * line {"events", "bytes", "first_ns", "last_ns"} tells when they came. Lines {"status": ...} say
 * when the engine polls, and in the end that it has stopped and of which error.
 */
public final class Debezium {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int SECONDS = 20;
  private static PrintStream out;

  public static void main(String[] arguments) throws Exception {
    // What libraries print must not come between the lines.
    out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "UTF-8");
    System.setOut(System.err);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    JsonNode job = JSON.readTree(in.readLine());
    Properties properties = new Properties();
    job.get("properties")
        .properties()
        .forEach(each -> properties.setProperty(each.getKey(), each.getValue().asText()));
    DebeziumEngine<?> engine = engine(job, properties);
    ExecutorService executor = Executors.newSingleThreadExecutor();
    executor.execute(engine);
    executor.shutdown();
    while (in.readLine() != null) {}
    try {
      engine.close();
    } catch (IllegalStateException stopped) {
      // It has stopped of itself, and said why.
    }
    executor.awaitTermination(SECONDS, TimeUnit.SECONDS);
    synchronized (out) {
      out.flush();
    }
    Runtime.getRuntime().halt(0); // whatever its threads are still at
  }

  private static DebeziumEngine<?> engine(JsonNode job, Properties properties) {
    String handed = job.get("handed").asText();
    if (handed.equals("connect")) {
      Count count = new Count(job.get("count").asLong());
      return configured(DebeziumEngine.create(Connect.class), properties)
          .notifying(
              (events, committer) -> {
                for (ChangeEvent<SourceRecord, SourceRecord> event : events) {
                  if (event.value().value() != null) {
                    count.add(0);
                  }
                  committer.markProcessed(event);
                }
                committer.markBatchFinished();
              })
          .build();
    }
    Count count = handed.equals("json") ? new Count(job.get("count").asLong()) : null;
    return configured(DebeziumEngine.create(Json.class), properties)
        .notifying(
            (events, committer) -> {
              for (ChangeEvent<String, String> event : events) {
                if (count == null) {
                  write(event);
                } else if (event.value() != null) {
                  count.add(event.value().length());
                }
                committer.markProcessed(event);
              }
              committer.markBatchFinished();
              synchronized (out) {
                out.flush();
              }
            })
        .build();
  }

  // The properties come first: what a consumer of the events is run by depends on them.
  private static <T> DebeziumEngine.Builder<T> configured(
      DebeziumEngine.Builder<T> builder, Properties properties) {
    return builder
        .using(properties)
        .using(
            new DebeziumEngine.ConnectorCallback() {
              @Override
              public void pollingStarted() {
                say(JSON.createObjectNode().put("status", "polling"));
              }
            })
        .using(
            (success, message, error) -> {
              ObjectNode line = JSON.createObjectNode().put("status", "stopped");
              if (!success) {
                StringBuilder text = new StringBuilder(String.valueOf(message));
                for (Throwable each = error; each != null; each = each.getCause()) {
                  text.append("\n").append(each);
                }
                line.put("error", text.toString());
              }
              say(line);
            });
  }

  private static void write(ChangeEvent<String, String> event) {
    synchronized (out) {
      out.print("{\"topic\":");
      out.print(JSON.getNodeFactory().textNode(event.destination()));
      out.print(",\"key\":");
      out.print(event.key());
      out.print(",\"value\":");
      out.print(event.value());
      out.print("}\n");
    }
  }

  private static void say(ObjectNode line) {
    synchronized (out) {
      out.print(line + "\n");
      out.flush();
    }
  }

  /** Counts events, and says when the first and the last came. One thread uses it. */
  private static final class Count {
    private final long expected;
    private long events;
    private long bytes;
    private long firstNs;

    Count(long expected) {
      this.expected = expected;
    }

    void add(long length) {
      if (events == 0) {
        firstNs = System.nanoTime();
      }
      events++;
      bytes += length;
      if (events == expected) {
        say(
            JSON.createObjectNode()
                .put("events", events)
                .put("bytes", bytes)
                .put("first_ns", firstNs)
                .put("last_ns", System.nanoTime()));
      }
    }
  }
}
