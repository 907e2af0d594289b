import javax.jms.*;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.RedeliveryPolicy;

/** An OpenWire client that cannot process what its own temporary queue gives it, and ends. */
public class ActiveMqTemporary {
    public static void main(String[] args) throws Exception {
        ActiveMQConnection connection = (ActiveMQConnection) new ActiveMQConnectionFactory(
            "tcp://127.0.0.1:" + System.getProperty("ow")).createConnection();
        RedeliveryPolicy never = new RedeliveryPolicy();
        never.setMaximumRedeliveries(0);
        connection.setRedeliveryPolicy(never);
        connection.start();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue place = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(place);
        session.createProducer(place).send(session.createTextMessage("died"));
        session.commit();
        if (consumer.receive(20000) == null) throw new Exception("nothing came");
        session.rollback();
        consumer.receive(500);
        connection.close();
    }
}
