import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import lab.Lab;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.messaging.Message;

/** Functions of Spring Cloud Stream on its binder of Kafka that throw, or want what a message cannot be converted to:
 * the binder sends it to its dead-letter topic. */
public class SpringCloudKafka {
    private static final Set<String> OF_THIS_DELIVERY =
        Set.of("id", "timestamp", "deliveryAttempt", "sourceData", "target-protocol", "contentType");

    public static void main(String[] words) {
        Lab.isMended = words[0].equals("mended");
        var application = new SpringApplication(Shop.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        var settings = new HashMap<String, Object>(Map.of(
            "spring.cloud.stream.default-binder", "kafka",
            "spring.cloud.stream.kafka.binder.brokers", Lab.URL,
            "spring.cloud.function.definition", Lab.isMended ? "pay;count" : "pay;convert"));
        settings.putAll(binding("pay", "orders"));
        settings.putAll(binding(Lab.isMended ? "count" : "convert", "stock"));
        application.setDefaultProperties(settings);
        application.run();
        if (!Lab.isMended) {
            var server = Map.<String, Object>of("bootstrap.servers", Lab.URL);
            try (var producer = new KafkaProducer<>(server, new StringSerializer(), new StringSerializer())) {
                Lab.LETTERS.forEach(letter -> producer.send(order(letter)));
            }
        }
    }

    private static Map<String, Object> binding(String function, String topic) {
        String binding = ".bindings." + function + "-in-0.";
        return Map.of(
            "spring.cloud.stream" + binding + "destination", Lab.PREFIX + topic,
            "spring.cloud.stream" + binding + "group", Lab.PREFIX + "billing",
            "spring.cloud.stream" + binding + "consumer.max-attempts", 3,
            "spring.cloud.stream" + binding + "consumer.back-off-initial-interval", 1,
            "spring.cloud.stream.kafka" + binding + "consumer.enable-dlq", true,
            "spring.cloud.stream.kafka" + binding + "consumer.dlq-name", Lab.PREFIX + topic + ".dead");
    }

    private static ProducerRecord<String, String> order(String letter) {
        var order = new ProducerRecord<>(
            Lab.PREFIX + (letter.startsWith("unread.") ? "stock" : "orders"), "a key", "an order");
        order.headers().add("letter", letter.getBytes(StandardCharsets.UTF_8));
        order.headers().add("tenant", "7".getBytes(StandardCharsets.UTF_8));
        return order;
    }

    @Configuration
    @EnableAutoConfiguration
    public static class Shop {
        @Bean
        public Consumer<Message<byte[]>> pay() {
            return SpringCloudKafka::take;
        }

        @Bean
        public Consumer<Message<byte[]>> count() {
            return SpringCloudKafka::take;
        }

        @Bean
        public Consumer<Stock> convert() {
            return stock -> { };
        }
    }

    /** What the message of an order is not. */
    public record Stock(int amount) {
    }

    private static void take(Message<byte[]> order) {
        var headers = new HashMap<String, Object>();
        order.getHeaders().forEach((name, value) -> headers.put(name, value instanceof byte[] bytes
            ? new String(bytes, StandardCharsets.UTF_8) : value));
        headers.put("key", headers.get("kafka_receivedMessageKey"));
        headers.keySet().removeIf(name -> name.startsWith("kafka_") || OF_THIS_DELIVERY.contains(name));
        String body = new String(order.getPayload(), StandardCharsets.UTF_8);
        if (!Lab.take((String) headers.get("letter"), body, headers).isEmpty()) {
            throw new Lab.Declined("the price is stale");
        }
    }
}
