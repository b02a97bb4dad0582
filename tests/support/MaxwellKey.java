import com.zendesk.maxwell.row.RowIdentity;
import com.zendesk.maxwell.row.RowMap.KeyFormat;
import java.util.ArrayList;
import java.util.List;
import org.apache.commons.lang3.tuple.Pair;

/** Prints the key that Maxwell gives to a row: database, table, and the columns of the key as NAME=INTEGER. */
final class MaxwellKey {
    public static void main(String[] words) throws Exception {
        List<Pair<String, Object>> columns = new ArrayList<>();
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split("=");
            columns.add(Pair.of(parts[0], (Object) Long.valueOf(parts[1])));
        }
        System.out.println(new RowIdentity(words[0], words[1], null, columns).toKeyJson(KeyFormat.HASH));
    }
}
