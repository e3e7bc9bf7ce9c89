import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.LockModeType;
import jakarta.persistence.Table;
import java.util.UUID;
import org.hibernate.annotations.ColumnTransformer;
import org.hibernate.annotations.Immutable;
import org.hibernate.cfg.Configuration;

// README: hibernate-entity

@Entity @Table(name = "payments")
class Payment {
    @Id String id;
    String status;
}

public class HibernateExample {
    public static void main(String[] args) {
        String paymentId = "pay-1", data = "{\"amount\": 42}";
        var factory = new Configuration()
            .addAnnotatedClass(OutboxEvent.class).addAnnotatedClass(Payment.class)
            .setProperty("hibernate.connection.url", "jdbc:" + System.getenv("URL_WITHOUT_USER"))
            .setProperty("hibernate.connection.username", System.getenv("PGUSER"))
            .buildSessionFactory();
        factory.inTransaction(session -> {
            // README: hibernate
        });
        factory.close();
    }
}
