import javax.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** An AMQP 1.0 producer: java -Damqp=PORT -Dids=DEFAULT -Dttl=0 ActiveMqAmqp.java QUEUE BODY...; `ids` is a messageIDType of Qpid JMS. */
public class ActiveMqAmqp {
    public static void main(String[] args) throws Exception {
        String ids = System.getProperty("ids", "DEFAULT");
        String url = "amqp://127.0.0.1:" + System.getProperty("amqp") + "?jms.messageIDPolicy.messageIDType=" + ids;
        Connection connection = new JmsConnectionFactory(url).createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(args[0]));
        producer.setTimeToLive(Long.getLong("ttl", 0));
        for (int i = 1; i < args.length; i++) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(args[i].getBytes());
            producer.send(message);
        }
        connection.close();
    }
}
