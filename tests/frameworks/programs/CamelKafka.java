import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import lab.Lab;
import org.apache.camel.Exchange;
import org.apache.camel.ExchangePropertyKey;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.StringSerializer;

/** Routes of Camel on Kafka that throw, or cannot convert a body: into the dead-letter channel with headers of Camel's
 * manual, or into an exception's own route. */
public class CamelKafka {
    private static final Map<String, Object> SERVER = Map.of("bootstrap.servers", Lab.URL);
    private static final String[] TOPICS = {"orders", "answers", "amounts", "dead"};

    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        if (!Lab.isMended) {
            try (var admin = Admin.create(SERVER)) {
                admin.createTopics(Stream.of(TOPICS).map(name -> new NewTopic(Lab.PREFIX + name, 1, (short) 1)).toList())
                    .all().get();
            }
            try (var producer = new KafkaProducer<>(SERVER, new StringSerializer(), new StringSerializer())) {
                Lab.LETTERS.forEach(letter -> producer.send(order(letter)));
            }
        }
        var main = new Main();
        main.configure().addRoutesBuilder(new Routes());
        main.run();
    }

    private static ProducerRecord<String, String> order(String letter) {
        String way = letter.substring(0, letter.indexOf('.'));
        String topic = Map.of("answered", "answers", "unread", "amounts").getOrDefault(way, "orders");
        var order = new ProducerRecord<>(Lab.PREFIX + topic, "a key", "an order");
        order.headers().add("letter", letter.getBytes(StandardCharsets.UTF_8));
        return order;
    }

    static class Routes extends RouteBuilder {
        @Override
        public void configure() {
            errorHandler(Lab.isMended
                ? defaultErrorHandler().maximumRedeliveries(2).redeliveryDelay(1)
                : deadLetterChannel(topic("dead"))
                    .maximumRedeliveries(2).redeliveryDelay(1).onPrepareFailure(CamelKafka::explain));
            from(topic("orders")).process(CamelKafka::pay);
            var answers = from(topic("answers"));
            var amounts = from(topic("amounts"));
            if (!Lab.isMended) {
                answers.onException(Lab.Declined.class).maximumRedeliveries(2).redeliveryDelay(1).handled(true)
                    .onRedelivery(CamelKafka::count).process(CamelKafka::answer).to(topic("dead"));
                amounts.process(CamelKafka::see).convertBodyTo(Integer.class);
            }
            answers.process(CamelKafka::pay);
            amounts.process(CamelKafka::pay);
        }
    }

    private static String topic(String name) {
        return "kafka:" + Lab.PREFIX + name + "?brokers=" + Lab.URL + "&groupId=" + Lab.PREFIX + "billing."
            + name + "&autoOffsetReset=earliest&autoCommitIntervalMs=100";
    }

    private static void explain(Exchange exchange) {
        var error = exchange.getProperty(ExchangePropertyKey.EXCEPTION_CAUGHT, Exception.class);
        var order = exchange.getIn();
        order.setHeader("FailedBecause", error.toString());
        order.setHeader("originalTopic", order.getHeader("CamelKafkaTopic"));
    }

    private static void count(Exchange exchange) {
        var order = exchange.getIn();
        order.setHeader("attempts", order.getHeader(Exchange.REDELIVERY_COUNTER, Integer.class) + 1);
    }

    private static void answer(Exchange exchange) {
        var error = exchange.getProperty(ExchangePropertyKey.EXCEPTION_CAUGHT, Exception.class);
        var order = exchange.getIn();
        order.setHeader("exceptionClass", error.getClass().getName());
        order.setHeader("exceptionMessage", error.getMessage());
    }

    private static void pay(Exchange exchange) {
        if (!see(exchange).isEmpty()) {
            throw new Lab.Declined("the price is stale");
        }
    }

    private static String see(Exchange exchange) {
        var order = exchange.getIn();
        var headers = new HashMap<String, Object>(Map.of("key", order.getHeader("CamelKafkaKey")));
        order.getHeader("CamelKafkaHeaders", Headers.class)
            .forEach(header -> headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8)));
        return Lab.take((String) headers.get("letter"), order.getBody(String.class), headers);
    }
}
