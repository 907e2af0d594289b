import java.util.Collection;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The official clients, which throw away what they read: RocketBench NAMESERVER TOPIC COUNT pull|lite|async. */
public class RocketBench {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        double rate = switch (arguments[3]) {
            case "pull" -> pull(arguments[0], topic, count);
            case "lite" -> lite(arguments[0], topic, count);
            default -> async(arguments[0], topic, count);
        };
        System.out.printf("rate %.0f%n", rate);
        System.exit(0);
    }

    static double pull(String nameServer, String topic, int count) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("TOOLS_CONSUMER");
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        long offset = 0;
        for (int i = 0; i < 300; i++) {  // warm up
            offset = Math.min(count, consumer.pull(queue, "*", offset, 32).getNextBeginOffset());
        }
        int got = 0;
        offset = 0;
        long start = System.nanoTime();
        while (got < count) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getPullStatus() != PullStatus.FOUND) break;
            offset = result.getNextBeginOffset();
            got += result.getMsgFoundList().size();
        }
        return got / ((System.nanoTime() - start) / 1e9);
    }

    static double lite(String nameServer, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite-" + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(32);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        consumer.assign(queues);
        for (MessageQueue queue : queues) consumer.seekToBegin(queue);
        int got = 0;
        long start = 0;
        while (got < count) {
            List<MessageExt> messages = consumer.poll(3000);
            if (messages.isEmpty()) break;
            if (start == 0) start = System.nanoTime();
            got += messages.size();
        }
        return got / ((System.nanoTime() - start) / 1e9);
    }

    static double async(String nameServer, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(nameServer);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(20000);
        producer.start();
        byte[] body = new byte[1024];
        new Random(1).nextBytes(body);
        for (int i = 0; i < 2000; i++) producer.send(new Message(topic, "t", "k" + i, body));
        AtomicInteger confirmed = new AtomicInteger();
        Semaphore window = new Semaphore(256);
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            window.acquire();
            producer.send(new Message(topic, "t", "k" + i, body), new SendCallback() {
                public void onSuccess(SendResult result) {
                    confirmed.incrementAndGet();
                    window.release();
                }

                public void onException(Throwable error) {
                    window.release();
                }
            });
        }
        window.acquire(256);
        return confirmed.get() / ((System.nanoTime() - start) / 1e9);
    }
}
