import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import lab.Lab;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ's own push consumers that ask for a message again, throw, or suspend its queue, until
 * `maxReconsumeTimes`. */
public class RocketPush {
    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        if (!Lab.isMended) {
            send();
        }
        DefaultMQPushConsumer billing = consumer("orders", "billing");
        billing.registerMessageListener((MessageListenerConcurrently) (orders, context) -> switch (take(orders.get(0))) {
            case "later" -> ConsumeConcurrentlyStatus.RECONSUME_LATER;
            case "thrown" -> throw new Lab.Declined("the price is stale");
            default -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer stock = consumer("amounts", "stock");
        stock.registerMessageListener((MessageListenerOrderly) (amounts, context) -> take(amounts.get(0)).isEmpty()
            ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        for (DefaultMQPushConsumer consumer : List.of(billing, stock)) {
            consumer.start();
            Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        }
        Thread.currentThread().join();
    }

    private static void send() throws Exception {
        var producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(Lab.URL);
        producer.setSendMsgTimeout(100_000);
        producer.start();
        for (String letter : Lab.LETTERS) {
            String topic = letter.startsWith("suspended.") ? "amounts" : "orders";
            var order = new Message(Lab.PREFIX + topic, "new", "order-7", "an order".getBytes(StandardCharsets.UTF_8));
            order.putUserProperty("letter", letter);
            producer.send(order);
        }
        producer.shutdown();
    }

    private static DefaultMQPushConsumer consumer(String topic, String group) throws Exception {
        var consumer = new DefaultMQPushConsumer(Lab.PREFIX + group);
        consumer.setNamesrvAddr(Lab.URL);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMqClientApiTimeout(100_000);
        consumer.setPollNameServerInterval(1000);
        consumer.setMaxReconsumeTimes(2);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.setPersistConsumerOffsetInterval(100);
        consumer.subscribe(Lab.PREFIX + topic, "*");
        return consumer;
    }

    private static String take(MessageExt order) {
        var headers = new HashMap<String, Object>(order.getProperties());
        headers.keySet().removeAll(MessageConst.STRING_HASH_SET);
        headers.put("keys", order.getKeys());
        headers.put("tags", order.getTags());
        String body = new String(order.getBody(), StandardCharsets.UTF_8);
        return Lab.take(order.getProperty("letter"), body, headers);
    }
}
