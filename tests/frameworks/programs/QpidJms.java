import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.HashMap;
import lab.Lab;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A consumer by Qpid JMS alone that rejects, gives a message back as failed until the limit, or comes too late. */
public class QpidJms {
    private static final int INDIVIDUAL = 101, ACCEPTED = 1, REJECTED = 2, FAILED = 4;

    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        String[] parts = Lab.URL.split("[:@]", 3);
        var connection = new JmsConnectionFactory(parts[0], parts[1], "amqp://" + parts[2]).createConnection();
        connection.start();
        if (!Lab.isMended) {
            var session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            for (String letter : Lab.LETTERS) {
                send(session, letter);
            }
            Thread.sleep(400);  // what comes too late has expired before somebody listens
        }
        for (String queue : new String[] {"shop", "shop.wait"}) {
            var session = connection.createSession(INDIVIDUAL);
            session.createConsumer(session.createQueue(Lab.PREFIX + queue)).setMessageListener(QpidJms::pay);
        }
        Thread.currentThread().join();
    }

    private static void send(Session session, String letter) throws JMSException {
        boolean isLate = letter.startsWith("expired.");
        Message order = session.createTextMessage("an order\u0000");
        order.setStringProperty("letter", letter);
        order.setLongProperty("tenant", 7);
        order.setJMSCorrelationID("a basket");
        order.setJMSType("order");
        session.createProducer(session.createQueue(Lab.PREFIX + (isLate ? "shop.wait" : "shop")))
            .send(order, DeliveryMode.PERSISTENT, 4, isLate ? 200 : 0);
    }

    private static void pay(Message order) {
        try {
            var headers = new HashMap<String, Object>();
            for (Object name : Collections.list(order.getPropertyNames())) {
                headers.put((String) name, order.getObjectProperty((String) name));
            }
            headers.remove("JMSXDeliveryCount");  // of this delivery
            headers.put("JMSCorrelationID", order.getJMSCorrelationID());
            headers.put("JMSType", order.getJMSType());
            headers.put("JMSMessageID", order.getJMSMessageID());
            order.setIntProperty("JMS_AMQP_ACK_TYPE", outcome(order.getStringProperty("letter"), order, headers));
            order.acknowledge();
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    private static int outcome(String letter, Message order, HashMap<String, Object> headers) throws JMSException {
        try {
            return switch (Lab.take(letter, ((TextMessage) order).getText(), headers)) {
                case "rejected" -> REJECTED;
                case "failed" -> FAILED;
                default -> ACCEPTED;
            };
        } catch (IllegalStateException hiccup) {
            return FAILED;
        }
    }
}
