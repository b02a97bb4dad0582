import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

/** Prints what Debezium makes of a log: topic, key and value of each record, with tabs between them. */
final class DebeziumEvents {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(words[0])) {
            settings.load(file);
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        DebeziumEngine.create(Json.class).using(settings).using((success, message, error) -> {
            System.err.println(message + ": " + error);
            Runtime.getRuntime().halt(1);
        }).notifying((batch, committer) -> {
            for (ChangeEvent<String, String> event : batch) {
                out.println(event.destination() + "\t" + event.key() + "\t" + event.value());
                committer.markProcessed(event);
            }
            committer.markBatchFinished();
        }).build().run();
    }
}
