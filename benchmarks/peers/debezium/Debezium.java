import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.engine.format.Json;
import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Reads a binlog with Debezium's engine. {@code read}: every value of every row, in this process; {@code json}: each
 * change as the engine's JSON, a line on standard output. The environment says what to read; see
 * benchmarks/peers/outcome.py for it and for the line that is printed.
 */
final class Debezium {
    private static final long WANTED = Long.parseLong(System.getenv("PEER_ROWS"));
    private static long rows;
    private static long checksum;
    private static long first;

    private static Properties settings() {
        Properties settings = new Properties();
        settings.setProperty("name", "peer");
        settings.setProperty("topic.prefix", StartAt.PREFIX);
        settings.setProperty("connector.class", "io.debezium.connector.mariadb.MariaDbConnector");
        settings.setProperty("database.hostname", System.getenv("PEER_HOST"));
        settings.setProperty("database.port", System.getenv("PEER_PORT"));
        settings.setProperty("database.user", System.getenv("PEER_WRITER"));
        settings.setProperty("database.password", System.getenv("PEER_PASSWORD"));
        settings.setProperty("database.server.id", String.valueOf((1L << 30) + ProcessHandle.current().pid()));
        settings.setProperty("database.ssl.mode", "disable");
        settings.setProperty("table.include.list", "bench.rows_");
        // The offset is given, and the table's columns are read from the server: neither rows nor history are.
        settings.setProperty("offset.storage", StartAt.class.getName());
        settings.setProperty("snapshot.mode", "recovery");
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.setProperty("decimal.handling.mode", "string");
        settings.setProperty("converter.schemas.enable", "false");
        settings.setProperty("tombstones.on.delete", "false");
        return settings;
    }

    private static void took(Struct row) {
        if (rows++ == 0) {
            first = System.nanoTime();
        }
        checksum += ((Number) row.get("id")).longValue() + ((Number) row.get("user")).longValue();
        checksum += ((Number) row.get("state")).longValue();
        checksum += row.get("amount") == null ? 0 : 1;
        checksum += row.get("changed") == null ? 0 : 1;
        checksum += row.getString("note").length() + row.getString("body").length(); // the table's texts are ASCII
    }

    private static void read(
            List<RecordChangeEvent<SourceRecord>> batch,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) throws InterruptedException {
        for (RecordChangeEvent<SourceRecord> event : batch) {
            if (event.record().value() instanceof Struct value && value.schema().field("after") != null) {
                took(value.getStruct("after"));
            }
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
        if (rows >= WANTED) {
            double seconds = (System.nanoTime() - first) / 1e9;
            System.out.printf("{\"rows\": %d, \"seconds\": %f, \"checksum\": %d}%n", rows, seconds, checksum);
            Runtime.getRuntime().halt(0);
        }
    }

    public static void main(String[] words) {
        if (words[0].equals("read")) {
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class)).using(settings())
                .notifying(Debezium::read).build().run();
            return;
        }
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 18), false, StandardCharsets.UTF_8);
        DebeziumEngine.create(Json.class).using(settings()).notifying((batch, committer) -> {
            for (ChangeEvent<String, String> event : batch) {
                out.print(event.value());
                out.print('\n');
                committer.markProcessed(event);
            }
            out.flush();
            committer.markBatchFinished();
        }).build().run();
    }
}
