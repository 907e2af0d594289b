import javax.jms.*;
import java.util.*;

/**
 * A text and bytes, each with a property of every type: "send QUEUE" and "show QUEUE", one line of JSON a message.
 * java -Dow=PORT [-Duser= -Dpassword=] -cp 'lib/*' ActiveMqTyped.java send|show QUEUE
 */
public class ActiveMqTyped {
    static final Map<String, Object> PROPERTIES = new TreeMap<>(Map.of("boolean", true, "byte", (byte) -8,
            "short", (short) -16, "int", 1 << 31, "long", 1L << 63, "float", 0.1f, "double", -1e300, "string", "7"));

    public static void main(String[] args) throws Exception {
        var factory = new org.apache.activemq.ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow"));
        Connection connection = factory.createConnection(System.getProperty("user"), System.getProperty("password"));
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        javax.jms.Queue queue = session.createQueue(args[1]);
        if (args[0].equals("send")) send(session, session.createProducer(queue));
        else show(session.createConsumer(queue));
        connection.close();
    }

    static void send(Session session, MessageProducer producer) throws Exception {
        TextMessage text = session.createTextMessage("wört 😀 \t end");
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, -1, 10, 0});
        for (Message message : new Message[] {text, bytes}) {
            for (var property : PROPERTIES.entrySet()) message.setObjectProperty(property.getKey(), property.getValue());
            message.setStringProperty("note", "d:e\nf 😀");
            message.setStringProperty("JMSXGroupID", "g");
            message.setJMSCorrelationID("correlation");
            message.setJMSReplyTo(session.createQueue("answers"));
            message.setJMSType("order");
            producer.send(message, DeliveryMode.PERSISTENT, 8, 0);
        }
    }

    static void show(MessageConsumer consumer) throws Exception {
        List<String> shown = new ArrayList<>();
        for (Message message; (message = consumer.receive(shown.isEmpty() ? 20000 : 1000)) != null; ) {
            List<String> parts = new ArrayList<>();
            for (var name : new TreeSet<String>(Collections.list((Enumeration<String>) message.getPropertyNames()))) {
                Object value = message.getObjectProperty(name);
                if (!name.startsWith("dlq_")) parts.add(name + "=" + value.getClass().getSimpleName() + ":" + value);
            }
            String body = message instanceof TextMessage text ? "text:" + text.getText() : "bytes:" + hex((BytesMessage) message);
            parts.addAll(List.of(body, message.getJMSCorrelationID(), "" + message.getJMSReplyTo(), message.getJMSType(),
                    "" + message.getJMSPriority(), "" + message.getJMSDeliveryMode(), "" + message.getJMSExpiration()));
            shown.add("\"" + HexFormat.of().formatHex(String.join("|", parts).getBytes("UTF-8")) + "\"");
        }
        System.out.println(shown);
    }

    static String hex(BytesMessage message) throws Exception {
        byte[] body = new byte[(int) message.getBodyLength()];
        message.readBytes(body);
        return HexFormat.of().formatHex(body);
    }
}
