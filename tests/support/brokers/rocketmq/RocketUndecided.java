import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer that decides only when it is asked: java RocketUndecided.java SERVERS TOPIC. */
public class RocketUndecided {
    public static void main(String[] arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("undecided");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(100000);  // a broker on a loaded machine may take more than the default, 3 s
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.valueOf(message.getKeys());
            }
        });
        producer.start();
        for (String outcome : new String[] {"COMMIT_MESSAGE", "ROLLBACK_MESSAGE"})
            producer.sendMessageInTransaction(new Message(arguments[1], "", outcome, outcome.getBytes()), null);
        Thread.currentThread().join();
    }
}
