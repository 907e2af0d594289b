import java.util.Arrays;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;

/** A client that rolls messages back until its limit of redeliveries: java -Dow=PORT ActiveMqGivenUp.java QUEUE MARK QUEUE MARK ... */
public class ActiveMqGivenUp {
    public static void main(String[] args) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow"));
        factory.getRedeliveryPolicy().setMaximumRedeliveries(1);
        factory.getRedeliveryPolicy().setInitialRedeliveryDelay(1);
        Connection connection = factory.createConnection();
        connection.start();
        for (int i = 0; i < args.length; i += 2) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            MessageConsumer consumer = session.createConsumer(session.createQueue(args[i]), "mark='" + args[i + 1] + "'");
            for (int time = 0; time < 2; time++) {
                if (consumer.receive(20000) == null) throw new java.lang.IllegalStateException(Arrays.toString(args) + i);
                session.rollback();
            }
            consumer.receive(50);                       // the limit counts when it would be delivered once more
            session.close();
        }
        connection.close();
    }
}
