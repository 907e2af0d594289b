import java.util.ArrayList;
import java.util.List;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Sends one message of each JMS class and some odd texts: java -Dow=PORT -cp 'lib/*' ActiveMqBodies.java QUEUE */
public class ActiveMqBodies {
    public static void main(String[] args) throws Exception {
        String url = "tcp://127.0.0.1:" + System.getProperty("ow");
        Connection connection = new ActiveMQConnectionFactory(System.getProperty("user"), System.getProperty("password"), url).createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(args[0]));
        MapMessage map = session.createMapMessage();
        map.setString("k", "v");
        map.setInt("n", 3);
        map.setBytes("b", new byte[] {0, 1});
        producer.send(map);
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(5);
        stream.writeString("z");
        producer.send(stream);
        StreamMessage likeText = session.createStreamMessage();
        likeText.writeBytes("ABCD".getBytes());
        likeText.writeString("the rest");
        producer.send(likeText);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, 1, 2, (byte) 255});
        producer.send(bytes);
        producer.send(session.createMessage());
        producer.send(session.createTextMessage());
        producer.send(session.createTextMessage(""));
        TextMessage emoji = session.createTextMessage("emoji \uD83D\uDE00 \u00e9");
        emoji.setStringProperty("JMSXGroupID", "g");
        emoji.setIntProperty("amount", 7);
        producer.send(emoji);
        producer.send(session.createTextMessage("nul\0in\0MESSAGE\n text"));
        producer.send(session.createTextMessage("after nul"));
        producer.send(session.createObjectMessage(new ArrayList<>(List.of("o"))));
        producer.send(session.createTextMessage("last\u001b"));
        connection.close();
        System.exit(0);
    }
}
