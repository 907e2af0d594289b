import javax.jms.*;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/** A map for a durable subscription that nobody reads: java -Dow=PORT -Duser= -Dpassword= ArtemisSubscription.java TOPIC SUBSCRIPTION */
public class ArtemisSubscription {
    public static void main(String[] args) throws Exception {
        var factory = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + System.getProperty("ow"));
        try (Connection connection = factory.createConnection(System.getProperty("user"), System.getProperty("password"))) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic(args[0]);
            session.createSharedDurableConsumer(topic, args[1]).close();
            MapMessage map = session.createMapMessage();
            map.setString("k", "v");
            map.setIntProperty("amount", 7);
            session.createProducer(topic).send(map);
        }
        System.exit(0);
    }
}
