import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.util.backoff.FixedBackOff;

/** Listeners of Spring, by the word's broker, at the private place of a rehearsal (LAB_PLACE): they throw at the
 * failures that they have not fixed (LAB_BROKEN). */
public class SpringRehearsed {
    private static final String URL = System.getenv("LAB_URL"), PLACE = System.getenv("LAB_PLACE");
    private static final Set<String> BROKEN = Set.of(System.getenv("LAB_BROKEN").split(" "));

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "rabbitmq" -> new AnnotationConfigApplicationContext(Rabbit.class).registerShutdownHook();
            case "kafka" -> listenOnKafka();
            default -> listenByJms();
        }
    }

    private static void pay(String failure) {
        if (BROKEN.contains(failure)) {
            throw new IllegalStateException("the " + failure + " is closed");
        }
    }

    @Configuration
    @EnableRabbit
    public static class Rabbit {
        @Bean
        public CachingConnectionFactory connections() {
            return new CachingConnectionFactory(URI.create(URL));
        }

        @Bean
        public SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory() {
            var factory = new SimpleRabbitListenerContainerFactory();
            factory.setConnectionFactory(connections());
            factory.setDefaultRequeueRejected(false);
            return factory;
        }

        @RabbitListener(queues = "#{systemEnvironment['LAB_PLACE']}")
        public void take(Message order) {
            pay(new String(order.getBody(), StandardCharsets.UTF_8));
        }
    }

    private static void listenOnKafka() {
        Map<String, Object> server = Map.of("bootstrap.servers", URL, "auto.offset.reset", "earliest");
        var strings = new StringSerializer();
        var template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(server, strings, strings));
        var properties = new ContainerProperties(PLACE);
        properties.setGroupId(PLACE);
        properties.setMessageListener((MessageListener<String, String>) order -> pay(order.value()));
        var reader = new StringDeserializer();
        var container = new ConcurrentMessageListenerContainer<>(
            new DefaultKafkaConsumerFactory<>(server, reader, reader), properties);
        container.setCommonErrorHandler(
            new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template), new FixedBackOff(0, 1)));
        container.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> container.stop()));
    }

    private static void listenByJms() throws Exception {
        String[] words = URL.split("[:@]", 3);
        var container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(new ActiveMQConnectionFactory("tcp://" + words[2], words[0], words[1]));
        container.setDestinationName(PLACE);
        container.setSessionTransacted(true);
        container.setupMessageListener((jakarta.jms.MessageListener) order -> {
            try {
                pay(new String(order.getBody(byte[].class), StandardCharsets.UTF_8));
            } catch (jakarta.jms.JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        container.afterPropertiesSet();
        container.start();
        Runtime.getRuntime().addShutdownHook(new Thread(container::shutdown));
    }
}
