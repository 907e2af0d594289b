import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import lab.Lab;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.autoconfigure.RocketMQAutoConfiguration;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQPushConsumerLifecycleListener;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** A listener of RocketMQ's Spring Boot starter that throws until `maxReconsumeTimes`. */
public class RocketSpring {
    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        if (!Lab.isMended) {
            send();
        }
        var application = new SpringApplication(Shop.class);
        application.setWebApplicationType(WebApplicationType.NONE);
        application.setDefaultProperties(Map.of("rocketmq.name-server", Lab.URL, "shop.prefix", Lab.PREFIX));
        application.run();
        Thread.currentThread().join();
    }

    private static void send() throws Exception {
        var producer = new DefaultMQProducer("spring-shop");
        producer.setSendMsgTimeout(100_000);
        producer.setMqClientApiTimeout(20_000);
        producer.setNamesrvAddr(Lab.URL);
        producer.start();
        for (String letter : Lab.LETTERS) {
            var order = new Message(Lab.PREFIX + "spring-orders", "new", "order-7", "an order".getBytes(StandardCharsets.UTF_8));
            order.putUserProperty("letter", letter);
            producer.send(order);
        }
        producer.shutdown();
    }

    @Configuration
    @EnableAutoConfiguration
    @org.springframework.context.annotation.Import(RocketMQAutoConfiguration.class)
    public static class Shop {
        @Bean
        public Billing billing() {
            return new Billing();
        }
    }

    @RocketMQMessageListener(
        topic = "${shop.prefix}spring-orders", consumerGroup = "${shop.prefix}spring-billing", maxReconsumeTimes = 2)
    public static class Billing implements RocketMQListener<MessageExt>, RocketMQPushConsumerLifecycleListener {
        @Override
        public void prepareStart(DefaultMQPushConsumer consumer) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPersistConsumerOffsetInterval(100);
        }

        @Override
        public void onMessage(MessageExt order) {
            var headers = new HashMap<String, Object>(order.getProperties());
            headers.keySet().removeAll(MessageConst.STRING_HASH_SET);
            headers.put("keys", order.getKeys());
            headers.put("tags", order.getTags());
            String body = new String(order.getBody(), StandardCharsets.UTF_8);
            if (!Lab.take(order.getProperty("letter"), body, headers).isEmpty()) {
                throw new Lab.Declined("the price is stale");
            }
        }
    }
}
