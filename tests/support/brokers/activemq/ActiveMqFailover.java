import java.io.File;
import java.io.FileWriter;
import java.util.concurrent.CountDownLatch;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQMessageConsumer;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.transport.DefaultTransportListener;

/**
 * A consumer with failover whose connection is cut while it works, with messages prefetched before its listener
 * is set: java -Dow=PORT -Dpx=PROXY -Dcut=FILE -Deffects=FILE ActiveMqFailover.java QUEUE. The file says that it is
 * time to cut, for which its listener waits; of what came before it acknowledges nothing. It consumes until its
 * standard input ends. What its listener has had is a line of the effects.
 */
public class ActiveMqFailover {
    static final int MESSAGES = 150, PREFETCHED = 100, FIRST = 40;

    static void send(Queue queue) throws Exception {
        Connection producing = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow")).createConnection();
        producing.start();
        Session session = producing.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(queue);
        for (int i = 0; i < MESSAGES; i++) {
            TextMessage message = session.createTextMessage("order " + i);
            message.setIntProperty("n", i);
            producer.send(message);
        }
        producing.close();
    }

    static class Worker implements MessageListener {
        final FileWriter effects = new FileWriter(System.getProperty("effects"));
        final Session session;
        final CountDownLatch reconnected = new CountDownLatch(1);
        int calls;

        Worker(ActiveMQConnection connection) throws Exception {
            connection.addTransportListener(new DefaultTransportListener() {
                public void transportResumed() {
                    if (new File(System.getProperty("cut")).exists()) reconnected.countDown();
                }
            });
            session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        }

        public void onMessage(Message message) {
            try {
                effects.write(message.getIntProperty("n") + "\n");
                effects.flush();
                calls++;
                if (calls == FIRST) {
                    new File(System.getProperty("cut")).createNewFile();
                    reconnected.await();
                    Thread.sleep(1000);
                } else if (calls > FIRST) message.acknowledge();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Queue queue = new ActiveMQQueue(args[0]);
        send(queue);
        String proxy = "failover:(tcp://127.0.0.1:" + System.getProperty("px") + "?wireFormat.maxInactivityDuration=0)";
        String settings = "?jms.prefetchPolicy.queuePrefetch=" + PREFETCHED + "&initialReconnectDelay=100";
        ActiveMQConnection consuming = (ActiveMQConnection) new ActiveMQConnectionFactory(proxy + settings).createConnection();
        Worker worker = new Worker(consuming);
        ActiveMQMessageConsumer consumer = (ActiveMQMessageConsumer) worker.session.createConsumer(queue);
        consuming.start();
        while (consumer.getMessageSize() < PREFETCHED) Thread.sleep(50);   // before there is a listener
        consumer.setMessageListener(worker);
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
