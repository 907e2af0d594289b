import java.net.URL;
import java.util.*;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.BlobMessage;

/**
 * A message of each class, plain and compressed, with properties of every type: "send QUEUE" and "show QUEUE", one
 * line of JSON a message.
 * java -Dow=PORT [-Duser= -Dpassword=] -cp 'lib/*' ActiveMqClasses.java send|show QUEUE
 */
public class ActiveMqClasses {
    static final String TEXT = "wört 😀 \0 \t end";

    public static void main(String[] args) throws Exception {
        for (boolean compressed : args[0].equals("send") ? new boolean[] {false, true} : new boolean[] {false}) {
            var factory = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow"));
            factory.setUseCompression(compressed);
            factory.setTrustAllPackages(true);
            Connection connection = factory.createConnection(System.getProperty("user"), System.getProperty("password"));
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            javax.jms.Queue queue = session.createQueue(args[1]);
            if (args[0].equals("send")) send(session, session.createProducer(queue));
            else show(session.createConsumer(queue));
            connection.close();
        }
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
        map.setObject("list", List.of("a", 1));
        map.setObject("map", Map.of("k", 2L));
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(5);
        stream.writeString(TEXT);
        stream.writeBytes(new byte[] {1, 2, 3});
        stream.writeObject(null);
        stream.writeDouble(0.5);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, -1, 10, 0});
        BlobMessage blob = ((ActiveMQSession) session).createBlobMessage(new URL("http://127.0.0.1:1/blob"));
        blob.setMimeType("image/png");
        Message[] messages = {map, stream, session.createObjectMessage(new ArrayList<>(List.of("o", 7))), bytes, blob,
                session.createTextMessage(TEXT), session.createTextMessage(""), session.createTextMessage(),
                session.createBytesMessage(), session.createMapMessage(), session.createMessage()};
        int number = 0;
        for (Message message : messages) {
            message.setStringProperty("note", "d:e\nf 😀");
            message.setStringProperty("empty", "");
            message.setStringProperty("long", "y".repeat(20_000));
            message.setBooleanProperty("boolean", true);
            message.setByteProperty("byte", (byte) -8);
            message.setShortProperty("short", (short) -16);
            message.setIntProperty("int", 1 << 31);
            message.setLongProperty("long number", 1L << 63);
            message.setFloatProperty("float", 0.1f);
            message.setDoubleProperty("double", -1e300);
            message.setObjectProperty("char", 'é');
            message.setObjectProperty("nothing", null);
            message.setObjectProperty("map", new TreeMap<>(Map.of("k", 1, "l", List.of(2.5))));
            message.setStringProperty("JMSXGroupID", "g");
            message.setIntProperty("JMSXGroupSeq", ++number);
            message.setJMSCorrelationID("correlation");
            message.setJMSReplyTo(session.createQueue("answers"));
            message.setJMSType("order");
            producer.send(message, DeliveryMode.PERSISTENT, 8, 0);
        }
    }

    static void show(MessageConsumer consumer) throws Exception {
        List<String> shown = new ArrayList<>();
        for (Message message; (message = consumer.receive(shown.isEmpty() ? 20000 : 1000)) != null; ) {
            List<String> parts = new ArrayList<>(List.of(message.getClass().getSimpleName()));
            for (var name : new TreeSet<String>(Collections.list((Enumeration<String>) message.getPropertyNames())))
                if (!name.startsWith("dlq_")) parts.add(name + "=" + shown(message.getObjectProperty(name)));
            parts.addAll(List.of(body(message), message.getJMSCorrelationID(), "" + message.getJMSReplyTo(),
                    message.getJMSType(), "" + message.getJMSPriority(), "" + message.getJMSDeliveryMode()));
            shown.add("\"" + HexFormat.of().formatHex(String.join("|", parts).getBytes("UTF-8")) + "\"");
        }
        System.out.println(shown);
    }

    static String body(Message message) throws Exception {
        if (message instanceof TextMessage text) return "" + text.getText();
        if (message instanceof ObjectMessage object) return shown(object.getObject());
        if (message instanceof BlobMessage blob) return blob.getURL() + " " + blob.getMimeType();
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
