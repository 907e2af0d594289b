import java.util.*;
import javax.jms.*;

/**
 * A text and bytes, each with properties that have the names of STOMP's headers: "send QUEUE NAME=VALUE..." and
 * "show QUEUE", one object of JSON a message.
 * java -Dow=PORT [-Duser= -Dpassword=] -cp 'lib/*' ActiveMqShadows.java send QUEUE type=x
 */
public class ActiveMqShadows {
    public static void main(String[] args) throws Exception {
        var factory = new org.apache.activemq.ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow"));
        Connection connection = factory.createConnection(System.getProperty("user"), System.getProperty("password"));
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        javax.jms.Queue queue = session.createQueue(args[1]);
        if (args[0].equals("send")) send(session, session.createProducer(queue), Arrays.asList(args).subList(2, args.length));
        else show(session.createConsumer(queue));
        connection.close();
    }

    static void send(Session session, MessageProducer producer, List<String> properties) throws Exception {
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, -1, 10, 0, 7});
        for (Message message : new Message[] {session.createTextMessage("text"), bytes}) {
            for (String each : properties) message.setStringProperty(each.split("=")[0], each.split("=", 2)[1]);
            message.setJMSCorrelationID("correlation");
            message.setJMSReplyTo(session.createQueue("answers"));
            message.setJMSType("order");
            producer.send(message, DeliveryMode.PERSISTENT, 8, 0);
        }
    }

    static void show(MessageConsumer consumer) throws Exception {
        List<String> shown = new ArrayList<>();
        for (Message message; (message = consumer.receive(shown.isEmpty() ? 20000 : 1000)) != null; ) {
            Map<String, String> parts = new TreeMap<>();
            for (var name : Collections.list((Enumeration<String>) message.getPropertyNames()))
                if (!name.startsWith("dlq_") && !name.equals("JMSXDeliveryCount")) parts.put(name, message.getStringProperty(name));
            parts.put("", message.getJMSCorrelationID() + " " + message.getJMSReplyTo() + " " + message.getJMSType() + " " + message.getJMSPriority()
                    + " " + (message instanceof TextMessage text ? text.getText() : "bytes:" + ((BytesMessage) message).getBodyLength()));
            List<String> pairs = new ArrayList<>();
            for (var part : parts.entrySet()) pairs.add("\"" + part.getKey() + "\":\"" + part.getValue() + "\"");
            shown.add("{" + String.join(",", pairs) + "}");
        }
        System.out.println(shown);
    }
}
