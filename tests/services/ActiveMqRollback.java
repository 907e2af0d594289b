import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.*;
import org.apache.activemq.*;

/** Two messages, one redelivery each: one is rolled back by a session, one by a listener that throws. */
public class ActiveMqRollback {
    public static void main(String[] args) throws Exception {
        String url = "tcp://127.0.0.1:" + System.getProperty("ow");
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
        RedeliveryPolicy once = factory.getRedeliveryPolicy();
        once.setMaximumRedeliveries(1);
        once.setInitialRedeliveryDelay(10);
        Connection connection = factory.createConnection();
        connection.start();
        Session plain = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = plain.createQueue(args[0]);
        MessageProducer producer = plain.createProducer(queue);

        producer.send(plain.createTextMessage("rolled back"));
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < 2; i++) {
            consumer.receive(10000);
            session.rollback();
        }
        consumer.receive(500);
        session.close();

        CountDownLatch twice = new CountDownLatch(2);
        plain.createConsumer(queue).setMessageListener(message -> {
            twice.countDown();
            throw new java.lang.IllegalStateException("boom\nsecond line");
        });
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        other.createProducer(queue).send(other.createTextMessage("thrown"));
        twice.await(20, TimeUnit.SECONDS);
        Thread.sleep(1000);
        connection.close();
        System.out.println("{\"rolled_back\": 1, \"thrown\": 1}");
        System.exit(0);
    }
}
