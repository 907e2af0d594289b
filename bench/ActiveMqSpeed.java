import javax.jms.*;
import org.apache.activemq.ActiveMQConnectionFactory;

/** The rival: java -Dow=PORT ActiveMqSpeed.java receive|send N QUEUE; prints letters per second. Everything is thrown away. */
public class ActiveMqSpeed {
    static final String ZEROS = "0".repeat(23);

    public static void main(String[] args) throws Exception {
        String url = "tcp://127.0.0.1:" + System.getProperty("ow") + "?jms.watchTopicAdvisories=false" + System.getenv().getOrDefault("LOGIN", "");
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
        factory.getPrefetchPolicy().setQueuePrefetch(1000);
        Connection connection = factory.createConnection();
        connection.start();
        int letters = Integer.parseInt(args[1]);
        long began = System.nanoTime();
        int done = args[0].equals("send") ? send(connection, letters, args[2]) : receive(connection, letters, args[2]);
        System.out.println(done / ((System.nanoTime() - began) / 1e9));
        connection.close();
        System.exit(0);
    }

    /** Client acknowledgement of every hundredth. */
    static int receive(Connection connection, int letters, String queue) throws Exception {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        Message last = null;
        int i = 0;
        for (; i < letters; i++) {
            Message message = consumer.receive(20000);
            if (message == null) break;
            last = message;
            ((BytesMessage) message).getBodyLength();
            if (i % 100 == 99) message.acknowledge();
        }
        if (last != null) last.acknowledge();
        return i;
    }

    /** Persistent, in transactions of a hundred, with the properties of a replayed letter. */
    static int send(Connection connection, int letters, String queue) throws Exception {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        byte[] body = new byte[1024];
        for (int i = 0; i < letters; i++) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body);
            message.setStringProperty("tenant", "42");
            String id = ZEROS + (100_000_000 + i);
            message.setStringProperty("dlq_replay_id", id);
            message.setStringProperty("dlq_replay_lap", "1");
            message.setStringProperty("dlq_replay_of", id);
            producer.send(message);
            if (i % 100 == 99) session.commit();
        }
        session.commit();
        return letters;
    }
}
