import java.io.FileWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumers that fail on every message, one group for each way to die: java RocketFailing.java SERVERS TOPIC GROUP. */
public class RocketFailing {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer sendsBack = consumer(arguments, "send_back");
        sendsBack.registerMessageListener(
                (MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(RocketFailing::note);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
        DefaultMQPushConsumer fallsBack = consumer(arguments, "fallback");
        fallsBack.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            // Nothing lies there, so the broker refuses the send-back, and the client sends the message itself.
            messages.forEach(message -> message.setCommitLogOffset(1L << 60));
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        DefaultMQPushConsumer orderly = consumer(arguments, "orderly");
        orderly.registerMessageListener(
                (MessageListenerOrderly) (messages, context) -> ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        sendsBack.start();
        fallsBack.start();
        orderly.start();
        Thread.currentThread().join();
    }

    /** What a listener sees, as a line of the file that bears the name of the topic. */
    private static synchronized void note(MessageExt message) {
        String line = String.join("\t", message.getTopic(), "" + message.getTags(), "" + message.getKeys(),
                message.getMsgId(), "" + message.getFlag(), "" + message.getBornTimestamp(),
                new String(message.getBody()), "" + message.getReconsumeTimes(),
                String.join(" ", message.getProperties().keySet()));
        try (FileWriter file = new FileWriter(message.getTopic() + ".seen", true)) {
            file.write(line + "\n");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static DefaultMQPushConsumer consumer(String[] arguments, String how) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2] + "-" + how);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMqClientApiTimeout(100000);  // as the producers': a broker on a loaded machine is slow
        consumer.setPollNameServerInterval(1000);
        consumer.setMaxReconsumeTimes(1);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.subscribe(arguments[1], "*");
        return consumer;
    }
}
