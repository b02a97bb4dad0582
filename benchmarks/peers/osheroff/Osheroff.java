import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import java.io.Serializable;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Reads a binlog with osheroff's mysql-binlog-connector-java in this process, every value of every row. The environment
 * says what to read; see benchmarks/peers/outcome.py for it and for the line that is printed.
 */
final class Osheroff {
    private static long rows;
    private static long checksum;
    private static long first;

    private static long there(Serializable value) {
        return value == null ? 0 : 1;
    }

    private static long integer(Serializable value) {
        return ((Number) value).longValue();
    }

    private static long text(Serializable value) {
        return value instanceof byte[] bytes ? bytes.length : ((String) value).length(); // the table's texts are ASCII
    }

    private static void took(Serializable[] row) {
        if (rows++ == 0) {
            first = System.nanoTime();
        }
        checksum += integer(row[0]) + integer(row[1]) + there(row[2]) + integer(row[3]) + there(row[4]);
        checksum += text(row[5]) + text(row[6]);
    }

    public static void main(String[] words) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        long wanted = Long.parseLong(System.getenv("PEER_ROWS"));
        BinaryLogClient client = new BinaryLogClient(
            System.getenv("PEER_HOST"), Integer.parseInt(System.getenv("PEER_PORT")),
            System.getenv("PEER_USER"), System.getenv("PEER_PASSWORD"));
        client.setServerId((1L << 30) + ProcessHandle.current().pid());
        client.setBinlogFilename(System.getenv("PEER_FILE"));
        client.setBinlogPosition(4);
        client.setEventDeserializer(new EventDeserializer());
        client.registerEventListener(event -> {
            if (event.getData() instanceof WriteRowsEventData data) {
                data.getRows().forEach(Osheroff::took);
                if (rows >= wanted) {
                    double seconds = (System.nanoTime() - first) / 1e9;
                    System.out.printf("{\"rows\": %d, \"seconds\": %f, \"checksum\": %d}%n", rows, seconds, checksum);
                    Runtime.getRuntime().halt(0);
                }
            }
        });
        client.connect();
    }
}
