import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import lab.Lab;
import org.springframework.amqp.core.MessageBuilder;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.messaging.Message;

/** Functions of Spring Cloud Stream on its binder of RabbitMQ that throw, or want what a message cannot be converted
 * to: the binder republishes it to its dead-letter queue, or rejects it. */
public class SpringCloudStream {
    private static final Map<String, String> EXCHANGES =
        Map.of("republished", "orders", "rejected", "stock", "unread", "prices");
    private static final Set<String> OF_THIS_DELIVERY =
        Set.of("id", "timestamp", "deliveryAttempt", "sourceData", "target-protocol");

    public static void main(String[] words) {
        Lab.isMended = words[0].equals("mended");
        var application = new SpringApplication(Shop.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        var settings = new HashMap<String, Object>(Map.of(
            "spring.rabbitmq.addresses", Lab.URL, "spring.cloud.stream.default-binder", "rabbit",
            "spring.cloud.function.definition", Lab.isMended ? "pay;count;rate" : "pay;count;convert"));
        settings.putAll(binding("pay", "orders", true));
        settings.putAll(binding("count", "stock", false));
        settings.putAll(binding(Lab.isMended ? "rate" : "convert", "prices", true));
        application.setDefaultProperties(settings);
        var context = application.run();
        if (!Lab.isMended) {
            Lab.LETTERS.forEach(letter -> send(context.getBean(RabbitTemplate.class), letter));
        }
    }

    private static Map<String, Object> binding(String function, String destination, boolean isRepublished) {
        String binding = ".bindings." + function + "-in-0.";
        return Map.of(
            "spring.cloud.stream" + binding + "destination", Lab.PREFIX + destination,
            "spring.cloud.stream" + binding + "group", "billing",
            "spring.cloud.stream" + binding + "consumer.max-attempts", 3,
            "spring.cloud.stream" + binding + "consumer.back-off-initial-interval", 1,
            "spring.cloud.stream.rabbit" + binding + "consumer.auto-bind-dlq", true,
            "spring.cloud.stream.rabbit" + binding + "consumer.republish-to-dlq", isRepublished);
    }

    private static void send(RabbitTemplate template, String letter) {
        byte[] body = "an order".getBytes(StandardCharsets.UTF_8);
        String exchange = EXCHANGES.get(letter.substring(0, letter.indexOf('.')));
        template.send(Lab.PREFIX + exchange, "new", MessageBuilder.withBody(body)
            .setContentType("application/json").setHeader("letter", letter).setHeader("tenant", 7L).build());
    }

    @Configuration
    @EnableAutoConfiguration
    public static class Shop {
        @Bean
        public Consumer<Message<byte[]>> pay() {
            return SpringCloudStream::take;
        }

        @Bean
        public Consumer<Message<byte[]>> count() {
            return SpringCloudStream::take;
        }

        @Bean
        public Consumer<Message<byte[]>> rate() {
            return SpringCloudStream::take;
        }

        @Bean
        public Consumer<Price> convert() {
            return price -> { };
        }
    }

    /** What the message of an order is not. */
    public record Price(int amount) {
    }

    private static void take(Message<byte[]> order) {
        var headers = new HashMap<String, Object>(order.getHeaders());
        headers.keySet().removeIf(name -> name.startsWith("amqp_") || OF_THIS_DELIVERY.contains(name));
        String body = new String(order.getPayload(), StandardCharsets.UTF_8);
        if (!Lab.take((String) headers.get("letter"), body, headers).isEmpty()) {
            throw new Lab.Declined("the price is stale");
        }
    }
}
