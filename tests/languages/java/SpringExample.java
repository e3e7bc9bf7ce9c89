import java.util.UUID;
import javax.sql.DataSource;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;

public class SpringExample {
    public static class Payments {
        private final JdbcTemplate jdbc;

        public Payments() { jdbc = null; }  // for the proxy
        public Payments(JdbcTemplate jdbc) { this.jdbc = jdbc; }

        // README: spring
    }

    @Configuration
    @EnableTransactionManagement(proxyTargetClass = true)
    public static class Config {
        @Bean public DataSource dataSource() {
            return new DriverManagerDataSource("jdbc:" + System.getenv("URL_WITHOUT_USER"), System.getenv("PGUSER"), "");
        }
        @Bean public DataSourceTransactionManager transactionManager(DataSource d) { return new DataSourceTransactionManager(d); }
        @Bean public Payments payments(DataSource d) { return new Payments(new JdbcTemplate(d)); }
    }

    public static void main(String[] args) {
        try (var context = new AnnotationConfigApplicationContext(Config.class)) {
            context.getBean(Payments.class).capture("pay-1", "{\"amount\": 42}");
        }
    }
}
