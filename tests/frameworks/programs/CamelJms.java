import jakarta.jms.Message;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.HashMap;
import lab.Lab;
import org.apache.camel.Exchange;
import org.apache.camel.ExchangePropertyKey;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.jms.JmsComponent;
import org.apache.camel.component.jms.JmsMessage;
import org.apache.camel.main.Main;
import org.springframework.jms.core.JmsTemplate;

/** Routes of Camel on JMS that throw: in a transaction until the broker's limit, or into its dead-letter channel with
 * headers of Camel's manual. */
public class CamelJms {
    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        String[] parts = Lab.URL.split("[:@]", 3);
        var connections = new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(
            "tcp://" + parts[2], parts[0], parts[1]);
        if (!Lab.isMended) {
            Lab.LETTERS.forEach(letter -> send(new JmsTemplate(connections), letter));
        }
        var main = new Main();
        var jms = JmsComponent.jmsComponentTransacted(connections);
        main.bind("jms", jms);
        main.configure().addRoutesBuilder(new Routes());
        main.run();
    }

    private static void send(JmsTemplate template, String letter) {
        template.send(Lab.PREFIX + (letter.startsWith("parked.") ? "shop.parked" : "shop"), session -> {
            var order = session.createTextMessage("an order");
            order.setStringProperty("letter", letter);
            order.setLongProperty("tenant", 7);
            return order;
        });
    }

    static class Routes extends RouteBuilder {
        @Override
        public void configure() {
            from("jms:" + Lab.PREFIX + "shop").process(CamelJms::pay);
            var parked = from("jms:" + Lab.PREFIX + "shop.parked");
            if (!Lab.isMended) {
                parked.errorHandler(deadLetterChannel("jms:" + Lab.PREFIX + "dead")
                    .maximumRedeliveries(2).redeliveryDelay(1).onPrepareFailure(CamelJms::explain));
            }
            parked.process(CamelJms::pay);
        }
    }

    private static void explain(Exchange exchange) {
        var error = exchange.getProperty(ExchangePropertyKey.EXCEPTION_CAUGHT, Exception.class);
        exchange.getIn().setHeader("FailedBecause", error.toString());
        exchange.getIn().setHeader("originalQueue", Lab.PREFIX + "shop.parked");
    }

    private static void pay(Exchange exchange) throws Exception {
        Message order = exchange.getIn(JmsMessage.class).getJmsMessage();
        var headers = new HashMap<String, Object>();
        for (Object name : Collections.list(order.getPropertyNames())) {
            headers.put((String) name, order.getObjectProperty((String) name));
        }
        headers.remove("JMSXDeliveryCount");
        if (!Lab.take(order.getStringProperty("letter"), ((TextMessage) order).getText(), headers).isEmpty()) {
            throw new Lab.Declined("the price is stale");
        }
    }
}
