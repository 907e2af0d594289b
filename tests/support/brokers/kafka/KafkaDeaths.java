// Lets records die in Spring for Apache Kafka: java KafkaDeaths BOOTSTRAP PREFIX. The topics PREFIX-spring, -typed
// and -retried, and those of their dead letters, must be there; it runs until it is killed.
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.support.serializer.DelegatingByTypeSerializer;
import org.springframework.kafka.support.serializer.ErrorHandlingDeserializer;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

public class KafkaDeaths {
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        System.setProperty("prefix", arguments[1]);
        new AnnotationConfigApplicationContext(Spring.class);
        Thread.currentThread().join();
    }

    static void die(Object value) {
        throw new IllegalStateException("no such account: " + value);
    }

    @Configuration
    @EnableKafka
    @EnableKafkaRetryTopic
    public static class Spring {
        @Bean
        public DefaultKafkaConsumerFactory<Object, Object> consumerFactory() {
            var reader = new ErrorHandlingDeserializer<Object>((topic, data) -> new IntegerDeserializer().deserialize(topic, data));
            var key = new ErrorHandlingDeserializer<Object>((topic, data) -> data);
            return new DefaultKafkaConsumerFactory<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest"), key, reader);
        }

        @Bean
        public KafkaTemplate<Object, Object> defaultRetryTopicKafkaTemplate() {
            var writer = new DelegatingByTypeSerializer(Map.of(byte[].class, new ByteArraySerializer(), Integer.class, new IntegerSerializer()));
            return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(Map.of("bootstrap.servers", bootstrap), writer, writer));
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<Object, Object> kafkaListenerContainerFactory() {
            return new ConcurrentKafkaListenerContainerFactory<>() {{ setConsumerFactory(consumerFactory()); }};
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<Object, Object> counting() {
            var factory = new ConcurrentKafkaListenerContainerFactory<Object, Object>();
            factory.setConsumerFactory(consumerFactory());
            factory.setCommonErrorHandler(new DefaultErrorHandler(new DeadLetterPublishingRecoverer(defaultRetryTopicKafkaTemplate()), new FixedBackOff(0, 1)));
            factory.getContainerProperties().setDeliveryAttemptHeader(true);
            return factory;
        }

        @Bean
        public ThreadPoolTaskScheduler taskScheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @KafkaListener(topics = "${prefix}-spring", groupId = "${prefix}-billing", containerFactory = "counting")
        public void bill(Integer value) {
            die(value);
        }

        @KafkaListener(topics = "${prefix}-spring-dlt", groupId = "${prefix}-repair", containerFactory = "counting")
        public void repair(Integer value) {
            throw new UnsupportedOperationException("not today");
        }

        @KafkaListener(topics = "${prefix}-typed", groupId = "${prefix}-typing", containerFactory = "counting")
        public void take(UUID value) {
        }

        @RetryableTopic(attempts = "2", backOff = @BackOff(delay = 10), autoCreateTopics = "false")
        @KafkaListener(topics = "${prefix}-retried", groupId = "${prefix}-retrying")
        public void retry(Integer value) {
            die(value);
        }
    }
}
