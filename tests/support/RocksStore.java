import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.Transaction;
import org.rocksdb.TransactionDB;
import org.rocksdb.TransactionDBOptions;
import org.rocksdb.TransactionOptions;
import org.rocksdb.TtlDB;
import org.rocksdb.TxnDBWritePolicy;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * A RocksDB that obeys one command a line, for tests/support/rocks_java.py.
 *
 * A command is words, bytes are written in hex (and "-" for none), options as name=value;name=value. The answer is
 * "ok", words, or "error" and the message in hex. The process ends with its standard input.
 */
public final class RocksStore {
  private static final HexFormat HEX = HexFormat.of();

  private final Map<String, ColumnFamilyHandle> families = new HashMap<>();
  private final Map<String, Transaction> transactions = new HashMap<>();
  private RocksDB db;

  public static void main(String[] arguments) throws Exception {
    RocksDB.loadLibrary();
    RocksStore store = new RocksStore();
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line; (line = commands.readLine()) != null; ) {
      String answer;
      try {
        answer = "ok " + store.obey(line.split(" "));
      } catch (RocksDBException | IllegalArgumentException | InterruptedException error) {
        answer = "error " + HEX.formatHex(String.valueOf(error.getMessage()).getBytes(StandardCharsets.UTF_8));
      }
      System.out.println(answer);
    }
  }

  private String obey(String[] words) throws RocksDBException, InterruptedException {
    switch (words[0]) {
      case "open" -> open(words);
      case "close" -> close();
      case "write" -> write(words);
      case "storm" -> storm(Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[3]);
      case "begin" -> begin(words[1], words);
      case "prepare" -> transactions.get(words[1]).prepare();
      case "commit" -> finish(words[1], true);
      case "rollback" -> finish(words[1], false);
      case "flush" -> {
        try (FlushOptions options = new FlushOptions()) {
          db.flush(options, new ArrayList<>(families.values()));
        }
      }
      case "flushwal" -> db.flushWal(true);
      case "create" -> families.put(words[1], db.createColumnFamily(descriptor(words[1] + ":" + words[2])));
      case "drop" -> {
        try (ColumnFamilyHandle family = families.remove(words[1])) {
          db.dropColumnFamily(family);
        }
      }
      case "number" -> {
        return Integer.toString(families.get(words[1]).getID());
      }
      case "rows" -> {
        return rows(words[1]);
      }
      default -> throw new IllegalArgumentException("unknown command " + words[0]);
    }
    return db == null ? "0" : Long.toString(db.getLatestSequenceNumber());
  }

  /** open PATH KIND OPTIONS FAMILY:OPTIONS...: KIND is plain, ttl, or the write policy of a TransactionDB. */
  private void open(String[] words) throws RocksDBException {
    String path = words[1];
    DBOptions options = words[3].equals("-") ? new DBOptions() : DBOptions.getDBOptionsFromProps(properties(words[3]));
    if (options == null) {
      throw new IllegalArgumentException("the database's options are refused");
    }
    options.setCreateIfMissing(true).setCreateMissingColumnFamilies(true);
    List<ColumnFamilyDescriptor> described = new ArrayList<>();
    for (int i = 4; i < words.length; i++) {
      described.add(descriptor(words[i]));
    }
    List<ColumnFamilyHandle> handles = new ArrayList<>();
    switch (words[2]) {
      case "plain" -> db = RocksDB.open(options, path, described, handles);
      case "ttl" -> {
        List<Integer> lives = new ArrayList<>();
        described.forEach(family -> lives.add(0));
        db = TtlDB.open(options, path, described, handles, lives, false);
      }
      default -> {
        TransactionDBOptions policy = new TransactionDBOptions();
        policy.setWritePolicy(TxnDBWritePolicy.valueOf(words[2]));
        db = TransactionDB.open(options, policy, path, described, handles);
        for (Transaction prepared : ((TransactionDB) db).getAllPreparedTransactions()) {
          transactions.put(prepared.getName(), prepared);
        }
      }
    }
    for (int i = 0; i < handles.size(); i++) {
      families.put(new String(described.get(i).getName(), StandardCharsets.US_ASCII), handles.get(i));
    }
  }

  private void close() throws RocksDBException {
    for (Transaction transaction : transactions.values()) {
      transaction.close();
    }
    transactions.clear();
    for (ColumnFamilyHandle family : families.values()) {
      family.close();
    }
    families.clear();
    db.closeE();
    db = null;
  }

  /** write FLAGS OPERATION...: FLAGS has n without the WAL and s with a sync. */
  private void write(String[] words) throws RocksDBException {
    try (WriteOptions options = new WriteOptions()) {
      options.setDisableWAL(words[1].contains("n")).setSync(words[1].contains("s"));
      if (words.length == 3 && words[2].startsWith("raw,")) {
        try (WriteBatch batch = new WriteBatch(bytes(words[2].substring(4)))) {
          db.write(options, batch);
        }
        return;
      }
      try (WriteBatch batch = new WriteBatch()) {
        for (int i = 2; i < words.length; i++) {
          String[] parts = words[i].split(",");
          ColumnFamilyHandle family = families.get(parts[1]);
          byte[] key = bytes(parts[2]);
          byte[] value = parts.length > 3 ? bytes(parts[3]) : null;
          switch (parts[0]) {
            case "put" -> batch.put(family, key, value);
            case "delete" -> batch.delete(family, key);
            case "single_delete" -> batch.singleDelete(family, key);
            case "merge" -> batch.merge(family, key, value);
            case "delete_range" -> batch.deleteRange(family, key, value);
            case "log_data" -> batch.putLogData(key);
            default -> throw new IllegalArgumentException("unknown operation " + parts[0]);
          }
        }
        db.write(options, batch);
      }
    }
  }

  /** THREADS write COUNT keys each, at the same time: PREFIX, the thread and the number, which is the value too. */
  private void storm(int threads, int count, String prefix) throws InterruptedException {
    List<Thread> running = new ArrayList<>();
    List<String> failures = new ArrayList<>();
    for (int t = 0; t < threads; t++) {
      int thread = t;
      running.add(new Thread(() -> {
        try {
          for (int i = 0; i < count; i++) {
            byte[] key = (prefix + "-" + thread + "-" + i).getBytes(StandardCharsets.US_ASCII);
            db.put(families.get("default"), key, Integer.toString(i).getBytes(StandardCharsets.US_ASCII));
          }
        } catch (RocksDBException error) {
          synchronized (failures) {
            failures.add(error.getMessage());
          }
        }
      }));
      running.get(t).start();
    }
    for (Thread thread : running) {
      thread.join();
    }
    if (!failures.isEmpty()) {
      throw new IllegalArgumentException(failures.get(0));
    }
  }

  /** begin NAME OPERATION...: a transaction that can be prepared. */
  private void begin(String name, String[] words) throws RocksDBException {
    try (WriteOptions writes = new WriteOptions(); TransactionOptions options = new TransactionOptions()) {
      Transaction transaction = ((TransactionDB) db).beginTransaction(writes, options);
      transaction.setName(name);
      transactions.put(name, transaction);
      for (int i = 2; i < words.length; i++) {
        String[] parts = words[i].split(",");
        ColumnFamilyHandle family = families.get(parts[1]);
        switch (parts[0]) {
          case "put" -> transaction.put(family, bytes(parts[2]), bytes(parts[3]));
          case "merge" -> transaction.merge(family, bytes(parts[2]), bytes(parts[3]));
          case "delete" -> transaction.delete(family, bytes(parts[2]));
          default -> throw new IllegalArgumentException("unknown operation " + parts[0]);
        }
      }
    }
  }

  private void finish(String name, boolean commit) throws RocksDBException {
    try (Transaction transaction = transactions.remove(name)) {
      if (commit) {
        transaction.commit();
      } else {
        transaction.rollback();
      }
    }
  }

  private String rows(String family) {
    StringBuilder rows = new StringBuilder();
    try (RocksIterator iterator = db.newIterator(families.get(family))) {
      for (iterator.seekToFirst(); iterator.isValid(); iterator.next()) {
        rows.append(text(iterator.key())).append('=').append(text(iterator.value())).append(' ');
      }
    }
    return rows.toString();
  }

  private static ColumnFamilyDescriptor descriptor(String described) {
    String[] parts = described.split(":", 2);
    ColumnFamilyOptions options = parts.length < 2 || parts[1].equals("-")
        ? new ColumnFamilyOptions()
        : ColumnFamilyOptions.getColumnFamilyOptionsFromProps(properties(parts[1]));
    if (options == null) {
      throw new IllegalArgumentException("options of column family " + parts[0] + " are refused");
    }
    return new ColumnFamilyDescriptor(parts[0].getBytes(StandardCharsets.US_ASCII), options);
  }

  private static Properties properties(String text) {
    Properties properties = new Properties();
    for (String pair : text.split(";")) {
      String[] parts = pair.split("=", 2);
      properties.setProperty(parts[0], parts[1]);
    }
    return properties;
  }

  private static byte[] bytes(String hex) {
    return hex.equals("-") ? new byte[0] : HEX.parseHex(hex);
  }

  private static String text(byte[] bytes) {
    return bytes.length == 0 ? "-" : HEX.formatHex(bytes);
  }
}
