import java.io.File;
import java.io.FileWriter;
import javax.jms.*;
import org.apache.activemq.*;

/**
 * A consumer with failover whose connection is cut while it works, with messages prefetched before its listener
 * is set: java -Dow=PORT -Dpx=PROXY -Dcut=FILE -Deffects=FILE ActiveMqFailover.java QUEUE. It consumes
 * until its standard input ends; each message that reaches the listener is a line of the effects.
 */
public class ActiveMqFailover {
    static final int MESSAGES = 150, CUT_AT = 40;

    public static void main(String[] args) throws Exception {
        Connection producing = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow")).createConnection();
        producing.start();
        Session session = producing.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(args[0]);
        MessageProducer producer = session.createProducer(queue);
        for (int i = 0; i < MESSAGES; i++) {
            TextMessage message = session.createTextMessage("order " + i);
            message.setIntProperty("n", i);
            producer.send(message);
        }
        producing.close();

        FileWriter effects = new FileWriter(System.getProperty("effects"));
        String proxy = "failover:(tcp://127.0.0.1:" + System.getProperty("px") + "?wireFormat.maxInactivityDuration=0)";
        Connection consuming = new ActiveMQConnectionFactory(proxy + "?jms.prefetchPolicy.queuePrefetch=100&initialReconnectDelay=100").createConnection();
        Session acking = consuming.createSession(false, ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = acking.createConsumer(queue);
        consuming.start();
        Thread.sleep(1500);                         // prefetched before there is a listener
        int[] calls = {0};
        consumer.setMessageListener(message -> {
            try {
                effects.write(message.getIntProperty("n") + "\n");
                effects.flush();
                if (++calls[0] == CUT_AT) {
                    new File(System.getProperty("cut")).createNewFile();
                    Thread.sleep(2000);
                } else if (calls[0] > CUT_AT) message.acknowledge();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        });
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
