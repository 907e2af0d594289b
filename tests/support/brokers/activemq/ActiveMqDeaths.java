import java.util.concurrent.CountDownLatch;
import javax.jms.*;
import org.apache.activemq.*;
import org.apache.activemq.command.*;

/** Messages that die in each way that needs a JMS client: java -Dow=PORT ActiveMqDeaths.java NAME; queues NAME.*, topic slow.NAME. */
public class ActiveMqDeaths {
    static ActiveMQConnection connected() throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow"));
        factory.getRedeliveryPolicy().setMaximumRedeliveries(1);
        factory.getRedeliveryPolicy().setInitialRedeliveryDelay(10);
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        connection.start();
        return connection;
    }

    static void send(ActiveMQConnection connection, Destination to, int number) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(to);
        for (int i = 0; i < number; i++) producer.send(session.createTextMessage("m" + i));
        session.close();
    }

    static void rolledBack(ActiveMQConnection connection, Queue queue) throws Exception {
        send(connection, queue, 1);
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < 2; i++) {
            consumer.receive(10000);
            session.rollback();
        }
        consumer.receive(500);
        session.close();
    }

    static void thrown(ActiveMQConnection connection, Queue queue) throws Exception {
        CountDownLatch twice = new CountDownLatch(2);
        connection.createSession(false, Session.AUTO_ACKNOWLEDGE).createConsumer(queue).setMessageListener(message -> {
            twice.countDown();
            throw new java.lang.IllegalStateException("boom\nsecond line");
        });
        send(connection, queue, 1);
        twice.await();
        awaitEmpty(connection, queue, null);
    }

    /** Until nothing lies in a queue, neither at a consumer; that of the queue, if any, receives meanwhile. */
    static void awaitEmpty(ActiveMQConnection connection, Queue queue, MessageConsumer consumer) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        boolean empty = false;
        for (int i = 0; i < 600 && !empty; i++) {
            if (consumer == null) Thread.sleep(100);
            else consumer.receive(100);
            QueueBrowser browser = session.createBrowser(queue);
            empty = !browser.getEnumeration().hasMoreElements();
            browser.close();
        }
        session.close();
        if (!empty) throw new java.lang.IllegalStateException(queue + " is not empty");
    }

    /** The consumer's connection breaks twice while it holds the message: the third never sees it. */
    static void brokenOff(ActiveMQConnection connection, Queue queue) throws Exception {
        send(connection, queue, 1);
        for (int i = 0; i < 3; i++) {
            ActiveMQConnection breaking = connected();
            MessageConsumer consumer = breaking.createSession(true, Session.SESSION_TRANSACTED).createConsumer(queue);
            if (i < 2) consumer.receive(10000);
            else awaitEmpty(connection, queue, consumer);
            breaking.getTransport().stop();
            Thread.sleep(300);
        }
    }

    /** The same message id once more, after it was consumed. */
    static void storedTwice(ActiveMQConnection connection, Queue queue) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("once"));
        String id = consumer.receive(10000).getJMSMessageID();
        consumer.close();
        ActiveMQTextMessage again = new ActiveMQTextMessage();
        again.setText("again");
        again.setMessageId(new MessageId(id));
        again.setProducerId(again.getMessageId().getProducerId());
        again.setDestination((ActiveMQDestination) queue);
        again.setPersistent(true);
        again.onSend();
        connection.syncSendPacket(again);
        awaitEmpty(connection, queue, session.createConsumer(queue));
        session.close();
    }

    /** A subscriber that takes nothing, with a limit of one pending message. */
    static void tooSlow(ActiveMQConnection connection, String name) throws Exception {
        Topic topic = new ActiveMQTopic(name + "?consumer.prefetchSize=1");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        session.createConsumer(topic);
        send(connection, new ActiveMQTopic(name), 5);
        Thread.sleep(500);
    }

    static void run(String name) throws Exception {
        ActiveMQConnection connection = connected();
        rolledBack(connection, new ActiveMQQueue(name + ".rolledback"));
        thrown(connection, new ActiveMQQueue(name + ".thrown"));
        brokenOff(connection, new ActiveMQQueue(name + ".broken"));
        storedTwice(connection, new ActiveMQQueue("dup." + name));
        tooSlow(connection, "slow." + name);
        Thread.sleep(500);
        connection.close();
    }

    public static void main(String[] args) {
        try {
            run(args[0]);
            System.exit(0);
        } catch (Throwable failure) {           // else the connections' threads keep the program alive
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
