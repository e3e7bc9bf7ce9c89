import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Adds up what was paid, each event once, however often it comes. */
public class Totals {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", System.getenv("BROKERS"),
            "group.id", "totals-java",
            "enable.auto.commit", "false",  // the offset is committed when the work is
            "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
             var db = DriverManager.getConnection(System.getenv("JDBC_URL"));
             var claim = db.prepareStatement("INSERT INTO inbox (consumer, event_id) VALUES ('totals-java', ?) ON CONFLICT DO NOTHING");
             var add = db.prepareStatement("INSERT INTO totals VALUES (?, (?::json ->> 'amount')::numeric)"
                 + " ON CONFLICT (payment) DO UPDATE SET total = totals.total + excluded.total")) {
            db.setAutoCommit(false);
            consumer.subscribe(List.of(System.getenv("TOPIC")));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    var eventId = new String(record.headers().lastHeader("event_id").value(), StandardCharsets.UTF_8);
                    claim.setObject(1, UUID.fromString(eventId));
                    boolean claimed = claim.executeUpdate() == 1;
                    if (claimed) {  // else it came before
                        add.setString(1, record.key());
                        add.setString(2, record.value());
                        add.executeUpdate();
                    }
                    db.commit();
                }
                consumer.commitSync();
            }
        }
    }
}
