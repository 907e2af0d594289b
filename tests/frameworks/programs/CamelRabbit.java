import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import lab.Lab;
import org.apache.camel.Exchange;
import org.apache.camel.ExchangePropertyKey;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;
import org.springframework.amqp.core.MessageBuilder;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;

/** Routes of Camel on RabbitMQ that throw: the component rejects the message after its retries, or the dead-letter
 * channel sends it on with headers of Camel's manual. */
public class CamelRabbit {
    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        var connections = new CachingConnectionFactory(URI.create(Lab.URL));
        var admin = new RabbitAdmin(connections);
        admin.declareQueue(QueueBuilder.durable(Lab.PREFIX + "shop.dead").build());
        for (String name : new String[] {"shop", "shop.parked"}) {
            admin.declareQueue(QueueBuilder.durable(Lab.PREFIX + name)
                .deadLetterExchange("").deadLetterRoutingKey(Lab.PREFIX + "shop.dead").build());
        }
        if (!Lab.isMended) {
            Lab.LETTERS.forEach(letter -> send(new RabbitTemplate(connections), letter));
        }
        var main = new Main();
        main.bind("connections", connections);
        main.configure().addRoutesBuilder(new Routes());
        main.run();
    }

    private static void send(RabbitTemplate template, String letter) {
        byte[] body = "an order".getBytes(StandardCharsets.UTF_8);
        template.send("", Lab.PREFIX + (letter.startsWith("parked.") ? "shop.parked" : "shop"),
            MessageBuilder.withBody(body).setContentType("text/plain")
                .setHeader("letter", letter).setHeader("tenant", 7L).build());
    }

    static class Routes extends RouteBuilder {
        @Override
        public void configure() {
            from(queue("shop")).process(CamelRabbit::pay);
            var parked = from(queue("shop.parked"));
            if (!Lab.isMended) {
                String dead = "spring-rabbitmq:default?routingKey=" + Lab.PREFIX + "shop.dead";
                parked.errorHandler(deadLetterChannel(dead)
                    .maximumRedeliveries(2).redeliveryDelay(1).onPrepareFailure(CamelRabbit::explain));
            }
            parked.process(CamelRabbit::pay);
        }
    }

    private static String queue(String name) {
        return "spring-rabbitmq:default?autoDeclare=false&maximumRetryAttempts=2&retryDelay=1&queues=" + Lab.PREFIX + name;
    }

    private static void explain(Exchange exchange) {
        var error = exchange.getProperty(ExchangePropertyKey.EXCEPTION_CAUGHT, Exception.class);
        exchange.getIn().setHeader("FailedBecause", error.toString());
        exchange.getIn().setHeader("originalQueue", Lab.PREFIX + "shop.parked");
    }

    private static void pay(Exchange exchange) {
        var headers = new HashMap<String, Object>(exchange.getIn().getHeaders());
        headers.keySet().removeIf(name -> name.startsWith("Camel"));
        String body = new String(exchange.getIn().getBody(byte[].class), StandardCharsets.UTF_8);
        if (!Lab.take((String) headers.get("letter"), body, headers).isEmpty()) {
            throw new Lab.Declined("the price is stale");
        }
    }
}
