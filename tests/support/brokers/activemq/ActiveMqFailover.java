import java.io.File;
import java.io.FileWriter;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;

/**
 * A consumer with failover whose connection is cut while it works, with messages prefetched before its listener
 * is set: java -Dow=PORT -Dpx=PROXY -Dcut=FILE -Deffects=FILE ActiveMqFailover.java QUEUE. The file says that it is
 * time to cut; of what came before it acknowledges nothing. It consumes until its standard input ends. What its
 * listener has had is a line of the effects.
 */
public class ActiveMqFailover {
    static final int MESSAGES = 150, FIRST = 40;

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
        int calls;

        Worker(Connection connection) throws Exception {
            session = connection.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        }

        public void onMessage(Message message) {
            try {
                effects.write(message.getIntProperty("n") + "\n");
                effects.flush();
                calls++;
                if (calls == FIRST) {
                    new File(System.getProperty("cut")).createNewFile();
                    Thread.sleep(2000);
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
        Connection consuming = new ActiveMQConnectionFactory(proxy + "?jms.prefetchPolicy.queuePrefetch=100&initialReconnectDelay=100").createConnection();
        Worker worker = new Worker(consuming);
        MessageConsumer consumer = worker.session.createConsumer(queue);
        consuming.start();
        Thread.sleep(1500);                         // prefetched before there is a listener
        consumer.setMessageListener(worker);
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
