import org.apache.activemq.artemis.api.core.client.*;

/**
 * Sends a Core message of the default type, whose octets are no text.
 * java -Dow=PORT -Duser= -Dpassword= -cp 'artemis/lib/*' ArtemisCore.java QUEUE
 */
public class ArtemisCore {
    public static void main(String[] args) throws Exception {
        String user = System.getProperty("user"), password = System.getProperty("password");
        try (ServerLocator locator = ActiveMQClient.createServerLocator("tcp://127.0.0.1:" + System.getProperty("ow"));
                ClientSessionFactory factory = locator.createSessionFactory();
                ClientSession session = factory.createSession(user, password, false, true, true, false, 1)) {
            ClientMessage message = session.createMessage(true);
            message.getBodyBuffer().writeBytes("octets".getBytes());
            session.createProducer(args[0]).send(message);
        }
        System.exit(0);
    }
}
