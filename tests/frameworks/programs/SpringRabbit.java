import lab.Lab;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.Declarables;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageBuilder;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.RetryInterceptorBuilder;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.retry.RepublishMessageRecoverer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.messaging.handler.annotation.Payload;

/** Listeners of Spring AMQP that reject, raise, cannot read a message, or park it after their retries. */
public class SpringRabbit {
    public static void main(String[] words) {
        Lab.isMended = words[0].equals("mended");
        var shop = Lab.isMended ? new Class<?>[] {Shop.class} : new Class<?>[] {Shop.class, Reading.class};
        var context = new AnnotationConfigApplicationContext(shop);
        if (!Lab.isMended) {
            Lab.LETTERS.forEach(letter -> send(context.getBean(RabbitTemplate.class), letter));
        }
        context.registerShutdownHook();
    }

    private static void send(RabbitTemplate template, String letter) {
        String way = letter.substring(0, letter.indexOf('.'));
        String queue = Map.of("parked", "shop.retried", "unread", "shop.typed").getOrDefault(way, "shop");
        byte[] body = "an order".getBytes(StandardCharsets.UTF_8);
        template.send("", Lab.PREFIX + queue, MessageBuilder.withBody(body)
            .setContentType("text/plain").setHeader("letter", letter).setHeader("tenant", 7L).build());
    }

    /** The queue of which the failing consumer cannot read a message is read by the mended one as the others. */
    public static String[] retried() {
        String queue = Lab.PREFIX + "shop.retried";
        return Lab.isMended ? new String[] {queue, Lab.PREFIX + "shop.typed"} : new String[] {queue};
    }

    @Configuration
    @EnableRabbit
    public static class Shop {
        @Bean
        public CachingConnectionFactory connections() {
            return new CachingConnectionFactory(URI.create(Lab.URL));
        }

        @Bean
        public RabbitAdmin admin() {
            return new RabbitAdmin(connections());
        }

        @Bean
        public Declarables queues() {
            var dead = new Queue(Lab.PREFIX + "shop.dead");
            return new Declarables(queue("shop"), queue("shop.retried"), queue("shop.typed"), dead);
        }

        private Queue queue(String name) {
            return QueueBuilder.durable(Lab.PREFIX + name)
                .deadLetterExchange("").deadLetterRoutingKey(Lab.PREFIX + "shop.dead").build();
        }

        @Bean
        public RabbitTemplate template() {
            return new RabbitTemplate(connections());
        }

        @Bean
        public SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory() {
            return listening();
        }

        private SimpleRabbitListenerContainerFactory listening() {
            var factory = new SimpleRabbitListenerContainerFactory();
            factory.setConnectionFactory(connections());
            factory.setDefaultRequeueRejected(Lab.isMended);
            return factory;
        }

        @Bean
        public SimpleRabbitListenerContainerFactory parking() {
            var factory = listening();
            var parked = new RepublishMessageRecoverer(template(), "", Lab.PREFIX + "shop.dead").includeStackTrace(true);
            factory.setAdviceChain(RetryInterceptorBuilder.stateless().maxRetries(2).recoverer(parked).build());
            return factory;
        }

        @RabbitListener(queues = "#{T(lab.Lab).PREFIX}shop")
        public void pay(Message order) {
            switch (take(order)) {
                case "rejected" -> throw new AmqpRejectAndDontRequeueException("not ours");
                case "raised" -> throw new Lab.Declined("the price is stale");
                default -> { }
            }
        }

        @RabbitListener(queues = "#{T(SpringRabbit).retried()}", containerFactory = "parking")
        public void retry(Message order) {
            if (!take(order).isEmpty()) {
                throw new Lab.Declined("the price is stale");
            }
        }

        private static String take(Message order) {
            var headers = new HashMap<>(order.getMessageProperties().getHeaders());
            headers.put("content_type", order.getMessageProperties().getContentType());
            String body = new String(order.getBody(), StandardCharsets.UTF_8);
            return Lab.take((String) headers.get("letter"), body, headers);
        }
    }

    public static class Reading {
        @RabbitListener(queues = "#{T(lab.Lab).PREFIX}shop.typed", containerFactory = "parking")
        public void read(@Payload Integer amount) {
        }
    }
}
