import java.util.*;
import javax.jms.*;

/**
 * A message of each class from Artemis' own client (Core) and from ActiveMQ's (OpenWire, plain and compressed):
 * "die QUEUE" sends them, shows them as Core's consumer gets them, and rolls back until they are dead letters;
 * "show QUEUE" takes them. One line of JSON a message, without what the broker itself adds. "bytes QUEUE" sends
 * texts of Core with bytes in a property, as correlation id, and nowhere.
 * java -Dow=PORT -Duser= -Dpassword= -cp 'artemis/lib/*' ArtemisClasses.java die|show|bytes QUEUE
 */
public class ArtemisClasses {
    static final String TEXT = "wört 😀 \0 \t end";
    static final String URL = "tcp://127.0.0.1:" + System.getProperty("ow");

    static ConnectionFactory core() throws Exception {
        return new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(URL);
    }

    static ConnectionFactory openwire(boolean compressed) {
        var factory = new org.apache.activemq.ActiveMQConnectionFactory(URL);
        factory.setUseCompression(compressed);
        return factory;
    }

    public static void main(String[] args) throws Exception {
        boolean die = args[0].equals("die");
        if (args[0].equals("bytes"))
            try (Connection connection = connected(core())) {
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                sendBytes(session, session.createProducer(session.createQueue(args[1])));
                System.exit(0);
            }
        if (die)
            for (var factory : List.of(core(), openwire(false), openwire(true)))
                try (Connection connection = connected(factory)) {
                    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                    send(session, session.createProducer(session.createQueue(args[1])));
                }
        try (Connection connection = connected(core())) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            System.out.println(shown(session, session.createConsumer(session.createQueue(args[1])), die));
        }
        System.exit(0);
    }

    static Connection connected(ConnectionFactory factory) throws Exception {
        Connection connection = factory.createConnection(System.getProperty("user"), System.getProperty("password"));
        connection.start();
        return connection;
    }

    static void sendBytes(Session session, MessageProducer producer) throws Exception {
        Message property = session.createTextMessage("property"), id = session.createBytesMessage();
        property.setObjectProperty("token", new byte[] {1, 2, 3});
        id.setJMSCorrelationIDAsBytes(new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
        for (Message message : List.of(property, id, session.createTextMessage("text"))) producer.send(message);
    }

    static void send(Session session, MessageProducer producer) throws Exception {
        MapMessage map = session.createMapMessage();
        map.setString("text", TEXT);
        map.setString("long text", "x".repeat(70_000));
        map.setChar("char", 'é');
        map.setByte("byte", (byte) -8);
        map.setShort("short", (short) -16);
        map.setInt("int", 1 << 31);
        map.setLong("long", 1L << 63);
        map.setFloat("float", 0.1f);
        map.setDouble("double", -1e300);
        map.setBoolean("boolean", true);
        map.setBytes("bytes", new byte[] {0, -1});
        map.setObject("null", null);
        StreamMessage stream = session.createStreamMessage();
        for (Object value : Arrays.asList(5, TEXT, new byte[] {1, 2, 3}, null, 0.5, 0.1f, 'é', (short) -1, (byte) -2, 1L << 63, true))
            stream.writeObject(value);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, -1, 10, 0});
        BytesMessage large = session.createBytesMessage();
        large.writeBytes("0123456789".repeat(20_000).getBytes());
        Message[] messages = {map, stream, session.createObjectMessage(new ArrayList<>(List.of("o", 7))), bytes, large,
                session.createTextMessage(TEXT), session.createTextMessage(""), session.createTextMessage(),
                session.createMapMessage(), session.createStreamMessage(), session.createMessage()};
        int number = 0;
        for (Message message : messages) {
            message.setStringProperty("note", "d:e\nf 😀");
            message.setStringProperty("empty", "");
            message.setStringProperty("long_text", "y".repeat(20_000));
            message.setBooleanProperty("boolean", true);
            message.setByteProperty("byte", (byte) -8);
            message.setShortProperty("short", (short) -16);
            message.setIntProperty("int", 1 << 31);
            message.setLongProperty("long_number", 1L << 63);
            message.setFloatProperty("float", 0.1f);
            message.setDoubleProperty("double", -1e300);
            message.setObjectProperty("nothing", null);
            message.setStringProperty("JMSXGroupID", "g");
            message.setIntProperty("JMSXGroupSeq", ++number);
            message.setJMSCorrelationID("correlation");
            message.setJMSReplyTo(session.createQueue("answers"));
            message.setJMSType("order");
            producer.send(message, DeliveryMode.PERSISTENT, 8, 0);
        }
    }

    static List<String> shown(Session session, MessageConsumer consumer, boolean die) throws Exception {
        List<String> shown = new ArrayList<>();
        for (Message message; (message = consumer.receive(shown.isEmpty() ? 20000 : 2000)) != null; ) {
            if (!message.getJMSRedelivered()) {
                List<String> parts = new ArrayList<>(List.of(message.getClass().getSimpleName()));
                for (var name : new TreeSet<String>(Collections.list((Enumeration<String>) message.getPropertyNames())))
                    if (!name.matches("dlq_.*|_AMQ_.*|__HDR_.*|JMSXDeliveryCount"))
                        parts.add(name + "=" + shown(message.getObjectProperty(name)));
                parts.addAll(List.of(body(message), message.getJMSCorrelationID(), "" + message.getJMSReplyTo(),
                        message.getJMSType(), "" + message.getJMSPriority(), "" + message.getJMSDeliveryMode()));
                shown.add("\"" + HexFormat.of().formatHex(String.join("|", parts).getBytes("UTF-8")) + "\"");
            }
            if (die) session.rollback(); else session.commit();
        }
        return shown;
    }

    static String body(Message message) throws Exception {
        if (message instanceof TextMessage text) return "" + text.getText();
        if (message instanceof ObjectMessage object) return shown(object.getObject());
        List<String> parts = new ArrayList<>();
        if (message instanceof MapMessage map)
            for (var name : new TreeSet<String>(Collections.list((Enumeration<String>) map.getMapNames())))
                parts.add(name + "=" + shown(map.getObject(name)));
        if (message instanceof StreamMessage stream)
            try { while (true) parts.add(shown(stream.readObject())); } catch (MessageEOFException end) { }
        if (message instanceof BytesMessage bytes)
            for (long left = bytes.getBodyLength(); left > 0; left--) parts.add("" + bytes.readByte());
        return "" + parts;
    }

    static String shown(Object value) {
        if (value instanceof byte[] bytes) return "bytes:" + HexFormat.of().formatHex(bytes);
        return value == null ? "null" : value.getClass().getSimpleName() + ":" + value;
    }
}
