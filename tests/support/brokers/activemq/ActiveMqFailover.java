import java.io.File;
import java.io.FileWriter;
import java.util.ArrayList;
import java.util.List;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQQueue;

/**
 * A consumer with failover whose connection is cut while it works, with messages prefetched before its listener
 * is set: java -Dow=PORT -Dpx=PROXY -Dcut=FILE -Deffects=FILE -Dmode=individual|transacted -Dcuts=1
 * ActiveMqFailover.java QUEUE. Before each cut it acknowledges nothing for a while; FILE.1 says that it is time to
 * cut, FILE.2 that it is time for the second one. It consumes until its standard input ends. What is done is a line of
 * the effects: when the listener has the message, in a transacted session when it is committed.
 */
public class ActiveMqFailover {
    static final int MESSAGES = 150, FIRST = 40, SECOND = 80, HELD = 20;

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
        final String mode = System.getProperty("mode", "individual");
        final int cuts = Integer.getInteger("cuts", 1);
        final List<String> open = new ArrayList<>();
        final Session session;
        int calls;

        Worker(Connection connection) throws Exception {
            boolean transacted = mode.equals("transacted");
            int acks = transacted ? Session.SESSION_TRANSACTED : ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE;
            session = connection.createSession(transacted, acks);
        }

        public void onMessage(Message message) {
            try {
                open.add(message.getIntProperty("n") + "\n");
                calls++;
                if (!mode.equals("transacted")) done();
                if (calls == FIRST) cut(1);
                else if (calls == SECOND && cuts > 1) cut(2);
                else if (calls > FIRST && (cuts == 1 || calls <= SECOND - HELD || calls > SECOND)) acknowledge(message);
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }

        void cut(int number) throws Exception {
            new File(System.getProperty("cut") + "." + number).createNewFile();
            Thread.sleep(2000);
        }

        void acknowledge(Message message) throws Exception {
            if (!mode.equals("transacted")) {
                message.acknowledge();
                return;
            }
            try {
                session.commit();
                done();
            } catch (JMSException undone) {         // the connection was cut since it began
                open.clear();
            }
        }

        void done() throws Exception {
            effects.write(String.join("", open));
            effects.flush();
            open.clear();
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
