import javax.jms.*;
import javax.transaction.xa.*;
import org.apache.activemq.ActiveMQXAConnectionFactory;

/** Sends messages in an XA transaction that it prepares and leaves: java -Dow=PORT ActiveMqPrepare QUEUE TEXT... */
public class ActiveMqPrepare {
    static final Xid BRANCH = new Xid() {
        public int getFormatId() { return 7; }
        public byte[] getGlobalTransactionId() { return new byte[] {1, 2, 3}; }
        public byte[] getBranchQualifier() { return new byte[] {4}; }
    };

    public static void main(String[] args) throws Exception {
        String url = "tcp://127.0.0.1:" + System.getProperty("ow");
        String user = System.getProperty("user", "");
        XAConnection connection = new ActiveMQXAConnectionFactory(
                user.isEmpty() ? null : user, System.getProperty("password"), url).createXAConnection();
        connection.start();
        XASession session = connection.createXASession();
        XAResource branch = session.getXAResource();
        branch.start(BRANCH, XAResource.TMNOFLAGS);
        MessageProducer producer = session.createProducer(session.createQueue(args[0]));
        for (int i = 1; i < args.length; i++) producer.send(session.createTextMessage(args[i]));
        branch.end(BRANCH, XAResource.TMSUCCESS);
        branch.prepare(BRANCH);
        Runtime.getRuntime().halt(0);
    }
}
