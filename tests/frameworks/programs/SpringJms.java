import lab.Lab;
import jakarta.jms.BytesMessage;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;

/** A listener of Spring JMS by the word's client (core, openwire, amqp): it throws in a transaction until the broker, or
 * the client, gives the message up; or it comes too late. */
public class SpringJms {
    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        var connections = connections(words[1]);
        if (!Lab.isMended) {
            Lab.LETTERS.forEach(letter -> send(new JmsTemplate(connections), letter));
            Thread.sleep(400);  // what comes too late has expired before somebody listens
        }
        for (String queue : new String[] {"shop", "shop.wait"}) {
            var container = new DefaultMessageListenerContainer();
            container.setConnectionFactory(connections);
            container.setDestinationName(Lab.PREFIX + queue);
            container.setSessionTransacted(true);
            container.setupMessageListener((jakarta.jms.MessageListener) SpringJms::pay);
            container.afterPropertiesSet();
            container.start();
            Runtime.getRuntime().addShutdownHook(new Thread(container::shutdown));
        }
    }

    private static ConnectionFactory connections(String client) throws Exception {
        String[] words = Lab.URL.split("[:@]", 3);
        String user = words[0], password = words[1], server = words[2];
        switch (client) {
            case "core":
                return new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory("tcp://" + server, user, password);
            case "openwire":
                var openwire = new org.apache.activemq.ActiveMQConnectionFactory(user, password, "tcp://" + server);
                openwire.getRedeliveryPolicy().setMaximumRedeliveries(1);
                openwire.getRedeliveryPolicy().setInitialRedeliveryDelay(1);
                return openwire;
            default:
                return new org.apache.qpid.jms.JmsConnectionFactory(user, password, "amqp://" + server);
        }
    }

    private static void send(JmsTemplate template, String letter) {
        String way = letter.substring(0, letter.indexOf('.'));
        boolean isLate = way.equals("expired");
        template.setExplicitQosEnabled(isLate);
        template.setTimeToLive(isLate ? 200 : 0);
        template.send(Lab.PREFIX + (isLate ? "shop.wait" : "shop"), session -> {
            Message order = order(session, way);
            order.setStringProperty("letter", letter);
            order.setLongProperty("tenant", 7);
            order.setJMSCorrelationID("a basket");
            order.setJMSType("order");
            return order;
        });
    }

    private static Message order(Session session, String way) throws JMSException {
        switch (way) {
            case "mapped":
                MapMessage map = session.createMapMessage();
                map.setInt("amount", 7);
                return map;
            case "bytes":
                BytesMessage bytes = session.createBytesMessage();
                bytes.writeBytes(new byte[] {0, 1, (byte) 0xff});
                return bytes;
            default:
                return session.createTextMessage("an order\u0000, " + way);
        }
    }

    private static void pay(Message order) {
        try {
            var headers = new HashMap<String, Object>(Map.of("JMSCorrelationID", order.getJMSCorrelationID(), "JMSType", order.getJMSType()));
            for (Object name : Collections.list(order.getPropertyNames())) {
                headers.put((String) name, order.getObjectProperty((String) name));
            }
            headers.remove("JMSXDeliveryCount");  // of this delivery
            if (!Lab.take(order.getStringProperty("letter"), body(order), headers).isEmpty()) {
                throw new Lab.Declined("the price is stale");
            }
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object body(Message order) throws JMSException {
        if (order instanceof TextMessage text) {
            return text.getText();
        }
        return order instanceof MapMessage map ? map.getInt("amount") : order.getBody(byte[].class);
    }
}
