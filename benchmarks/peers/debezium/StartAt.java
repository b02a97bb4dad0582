import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/** Offsets in memory that begin at the binlog file which the environment names. */
public final class StartAt extends MemoryOffsetBackingStore {
    static final String PREFIX = "peer";

    private static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void configure(WorkerConfig config) {
        super.configure(config);
        String offset = "{\"file\":\"%s\",\"pos\":4,\"gtids\":\"%s\",\"row\":0,\"event\":0}"
            .formatted(System.getenv("PEER_FILE"), System.getenv("PEER_GTIDS"));
        data.put(bytes("[\"peer\",{\"server\":\"%s\"}]".formatted(PREFIX)), bytes(offset));
    }

    @Override
    public Set<Map<String, Object>> connectorPartitions(String connectorName) {
        return null;
    }
}
