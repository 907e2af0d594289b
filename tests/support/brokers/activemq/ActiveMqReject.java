import javax.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** An AMQP 1.0 client that refuses messages: java -Damqp=PORT ActiveMqReject.java QUEUE OUTCOME...; 2 rejected, 5 undeliverable here. */
public class ActiveMqReject {
    public static void main(String[] args) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory("amqp://127.0.0.1:" + System.getProperty("amqp"));
        String user = System.getProperty("user", "");
        Connection connection = user.isEmpty() ? factory.createConnection() : factory.createConnection(user, System.getProperty("password"));
        connection.start();
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(args[0]));
        for (int i = 1; i < args.length; i++) {
            Message message = consumer.receive(20000);
            message.setIntProperty("JMS_AMQP_ACK_TYPE", Integer.parseInt(args[i]));
            message.acknowledge();
        }
        connection.close();
    }
}
