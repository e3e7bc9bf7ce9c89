import java.sql.DriverManager;

public class JdbcExample {
    public static void main(String[] args) throws Exception {
        String paymentId = "pay-1", data = "{\"amount\": 42}";
        try (var connection = DriverManager.getConnection("jdbc:" + System.getenv("URL_WITHOUT_USER"), System.getenv("PGUSER"), "")) {
            // README: jdbc
        }
    }
}
