import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Runs Kafka Connect's own classes over records: what the differential test compares with.
 *
 * <p>Reads jobs as JSON lines from standard input and answers each with one line. A job is {"op":
 * "chain", "steps": [{"class", "config", "predicate": {"class", "config"}, "negate"}], "sink",
 * "records"}, {"op": "parse", "texts"}, {"op": "read", "class", "config", "part", "bytes"} for
 * what a converter makes of bytes in base64, or {"op": "write", "class", "config", "part",
 * "records"} for what it writes of their values. The part is "key", "value" or "header".
 */
public final class Oracle {
  private static final ObjectMapper JSON =
      JsonMapper.builder().disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS).build();
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
  private static final JsonConverter WITH_SCHEMA = converter(Map.of("schemas.enable", "true"));
  private static final JsonConverter SCHEMALESS = converter(Map.of("schemas.enable", "false"));

  // Raw, as the class of a step is known by its name only.
  @SuppressWarnings("rawtypes")
  private record Step(Transformation transform, Predicate only, boolean negate) {
    @SuppressWarnings("unchecked")
    ConnectRecord<?> apply(ConnectRecord<?> record) {
      boolean applies = only == null || negate ^ only.test(record);
      return applies ? transform.apply(record) : record;
    }
  }

  public static void main(String[] arguments) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode job = JSON.readTree(line);
      ObjectNode answer = NODES.objectNode();
      try {
        answer.set("results", answer(job));
      } catch (Exception error) {
        answer.set("error", failure(error));
      }
      out.println(JSON.writeValueAsString(answer));
      out.flush();
    }
  }

  private static ArrayNode answer(JsonNode job) throws Exception {
    return switch (job.get("op").asText()) {
      case "chain" -> chain(job);
      case "parse" -> parse(job);
      case "read" -> read(job);
      default -> write(job);
    };
  }

  private static ArrayNode chain(JsonNode job) throws Exception {
    List<Step> steps = new ArrayList<>();
    for (JsonNode step : job.get("steps")) {
      steps.add(step(step));
    }
    ArrayNode results = NODES.arrayNode();
    for (JsonNode given : job.get("records")) {
      ObjectNode result = results.addObject();
      try {
        ConnectRecord<?> record = record(given, job.path("sink").asBoolean());
        for (Step step : steps) {
          if (record == null) {
            break;
          }
          record = step.apply(record);
        }
        outcome(result, record);
      } catch (Exception error) {
        result.set("error", failure(error));
      }
    }
    return results;
  }

  /** Tells what came out; a record that Kafka's own converter cannot write says nothing. */
  private static void outcome(ObjectNode result, ConnectRecord<?> record) {
    if (record == null) {
      result.put("dropped", true);
      return;
    }
    try {
      result.set("record", node(record));
    } catch (Exception error) {
      result.set("unwritable", failure(error));
    }
  }

  private static Step step(JsonNode step) throws Exception {
    Transformation<?> transform = (Transformation<?>) made(step.get("class"));
    transform.configure(texts(step.get("config")));
    JsonNode only = step.path("predicate");
    if (only.isMissingNode() || only.isNull()) {
      return new Step(transform, null, false);
    }
    Predicate<?> predicate = (Predicate<?>) made(only.get("class"));
    predicate.configure(texts(only.get("config")));
    return new Step(transform, predicate, step.path("negate").asBoolean());
  }

  private static Object made(JsonNode name) throws Exception {
    return Class.forName(name.asText()).getDeclaredConstructor().newInstance();
  }

  private static Map<String, String> texts(JsonNode config) {
    Map<String, String> texts = new HashMap<>();
    config.properties().forEach(entry -> texts.put(entry.getKey(), entry.getValue().asText()));
    return texts;
  }

  private static JsonConverter converter(Map<String, String> options) {
    JsonConverter converter = new JsonConverter();
    Map<String, String> config = new HashMap<>(options);
    // A null stays a null, so that it is the transforms that replace it.
    config.putIfAbsent("replace.null.with.default", "false");
    converter.configure(config, false);
    return converter;
  }

  private static ConnectRecord<?> record(JsonNode given, boolean sink) throws Exception {
    SchemaAndValue key = part(given, "key");
    SchemaAndValue value = part(given, "value");
    String topic = given.path("topic").asText("t");
    Integer partition = given.hasNonNull("partition") ? given.get("partition").asInt() : null;
    Long timestamp = given.hasNonNull("timestamp") ? given.get("timestamp").asLong() : null;
    Headers headers = headers(given.path("headers"));
    if (sink) {
      return new SinkRecord(
          topic,
          partition == null ? 0 : partition,
          key.schema(),
          key.value(),
          value.schema(),
          value.value(),
          given.path("offset").asLong(),
          timestamp,
          TimestampType.CREATE_TIME,
          headers);
    }
    return new SourceRecord(
        Map.of(), Map.of(), topic, partition, key.schema(), key.value(), value.schema(),
        value.value(), timestamp, headers);
  }

  private static SchemaAndValue part(JsonNode given, String name) throws Exception {
    JsonNode payload = given.hasNonNull(name) ? given.get(name) : NODES.nullNode();
    JsonNode schema = given.path(name + "_schema");
    if (schema.isMissingNode() || schema.isNull()) {
      byte[] text = payload.isNull() ? null : JSON.writeValueAsBytes(payload);
      return new SchemaAndValue(null, SCHEMALESS.toConnectData("t", text).value());
    }
    ObjectNode envelope = NODES.objectNode();
    envelope.set("schema", schema);
    envelope.set("payload", payload);
    return WITH_SCHEMA.toConnectData("t", JSON.writeValueAsBytes(envelope));
  }

  private static Headers headers(JsonNode given) {
    ConnectHeaders headers = new ConnectHeaders();
    for (JsonNode header : given) {
      String key = header.get("key").asText();
      String text = header.hasNonNull("value") ? header.get("value").asText() : null;
      switch (header.path("type").asText("string")) {
        case "int8" -> headers.addByte(key, Byte.parseByte(text));
        case "int16" -> headers.addShort(key, Short.parseShort(text));
        case "int32" -> headers.addInt(key, Integer.parseInt(text));
        case "int64" -> headers.addLong(key, Long.parseLong(text));
        case "float32" -> headers.addFloat(key, Float.parseFloat(text));
        case "float64" -> headers.addDouble(key, Double.parseDouble(text));
        case "boolean" -> headers.addBoolean(key, Boolean.parseBoolean(text));
        default -> headers.addString(key, text);
      }
    }
    return headers;
  }

  private static ObjectNode node(ConnectRecord<?> record) throws Exception {
    ObjectNode node = NODES.objectNode();
    node.put("topic", record.topic());
    node.put("partition", record.kafkaPartition());
    node.put("timestamp", record.timestamp());
    put(node, "key", record.keySchema(), record.key());
    put(node, "value", record.valueSchema(), record.value());
    ArrayNode headers = node.putArray("headers");
    for (Header header : record.headers()) {
      headers.add(node(header));
    }
    return node;
  }

  private static ObjectNode node(Header header) {
    ObjectNode node = NODES.objectNode();
    node.put("key", header.key());
    if (header.value() instanceof String text) {
      node.put("value", text);
    } else {
      node.put("value", Values.convertToString(header.schema(), header.value()));
    }
    Schema schema = header.schema();
    node.put("type", schema == null ? null : schema.type().name().toLowerCase(Locale.ROOT));
    if (schema != null && schema.name() != null) {
      node.put("name", schema.name());
    }
    return node;
  }

  private static void put(ObjectNode node, String name, Schema schema, Object value)
      throws Exception {
    if (schema == null) {
      node.set(name, schemaless(value));
      return;
    }
    JsonNode envelope = JSON.readTree(WITH_SCHEMA.fromConnectData("t", schema, value));
    node.set(name, envelope.get("payload"));
    node.set(name + "_schema", envelope.get("schema"));
  }

  /** Writes a value without a schema; what JSON has no word for is named by its kind. */
  private static JsonNode schemaless(Object value) {
    if (value instanceof Map<?, ?> map) {
      ObjectNode node = NODES.objectNode();
      map.forEach((key, item) -> node.set(String.valueOf(key), schemaless(item)));
      return node;
    }
    if (value instanceof List<?> list) {
      ArrayNode node = NODES.arrayNode();
      list.forEach(item -> node.add(schemaless(item)));
      return node;
    }
    if (value instanceof Struct struct) {
      ObjectNode node = NODES.objectNode();
      struct.schema().fields().forEach(f -> node.set(f.name(), schemaless(struct.get(f))));
      return node;
    }
    if (value instanceof Date date) {
      return NODES.objectNode().put("$date", date.getTime());
    }
    if (value instanceof BigDecimal decimal) {
      return NODES.objectNode().put("$decimal", decimal.toPlainString());
    }
    if (value instanceof Double || value instanceof Float) {
      double number = ((Number) value).doubleValue();
      if (!Double.isFinite(number)) {
        return NODES.textNode(String.valueOf(number));
      }
    }
    return JSON.valueToTree(value);
  }

  private static ArrayNode parse(JsonNode job) {
    ArrayNode results = NODES.arrayNode();
    for (JsonNode text : job.get("texts")) {
      ObjectNode result = results.addObject();
      try {
        SchemaAndValue parsed = Values.parseString(text.asText());
        Schema schema = parsed.schema();
        result.put("type", schema == null ? null : schema.type().name().toLowerCase(Locale.ROOT));
        result.put("name", schema == null ? null : schema.name());
        result.set("value", schemaless(parsed.value()));
        result.put("text", Values.convertToString(schema, parsed.value()));
      } catch (Exception error) {
        result.set("error", failure(error));
      }
    }
    return results;
  }

  private static ArrayNode read(JsonNode job) throws Exception {
    Object converter = configured(job);
    ArrayNode results = NODES.arrayNode();
    for (JsonNode text : job.get("bytes")) {
      ObjectNode result = results.addObject();
      SchemaAndValue found;
      try {
        byte[] bytes = text.isNull() ? null : Base64.getDecoder().decode(text.asText());
        found =
            isOfHeaders(job)
                ? ((HeaderConverter) converter).toConnectHeader("t", "h", bytes)
                : ((Converter) converter).toConnectData("t", bytes);
      } catch (Exception error) {
        result.set("error", failure(error));
        continue;
      }
      try {
        if (isOfHeaders(job)) {
          result.set("header", node(new ConnectHeaders().add("h", found).lastWithName("h")));
        } else {
          put(result.putObject("record"), "value", found.schema(), found.value());
        }
      } catch (Exception error) {
        result.removeAll();
        result.set("unwritable", failure(error));
      }
    }
    return results;
  }

  private static ArrayNode write(JsonNode job) throws Exception {
    Object converter = configured(job);
    ArrayNode results = NODES.arrayNode();
    for (JsonNode given : job.get("records")) {
      ObjectNode result = results.addObject();
      try {
        SchemaAndValue value = part(given, "value");
        byte[] bytes =
            isOfHeaders(job)
                ? ((HeaderConverter) converter)
                    .fromConnectHeader("t", "h", value.schema(), value.value())
                : ((Converter) converter).fromConnectData("t", value.schema(), value.value());
        result.put("bytes", bytes == null ? null : Base64.getEncoder().encodeToString(bytes));
      } catch (Exception error) {
        result.set("error", failure(error));
      }
    }
    return results;
  }

  private static boolean isOfHeaders(JsonNode job) {
    return job.get("part").asText().equals("header");
  }

  /** Makes the converter of a job. */
  private static Object configured(JsonNode job) throws Exception {
    Object converter = made(job.get("class"));
    Map<String, String> config = texts(job.get("config"));
    if (isOfHeaders(job)) {
      config.put("converter.type", "header");
      ((HeaderConverter) converter).configure(config);
    } else {
      ((Converter) converter).configure(config, job.get("part").asText().equals("key"));
    }
    return converter;
  }

  private static ObjectNode failure(Exception error) {
    ObjectNode node = NODES.objectNode();
    node.put("class", error.getClass().getName());
    node.put("message", error.getMessage());
    return node;
  }
}
