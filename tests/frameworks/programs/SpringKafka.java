import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import lab.Lab;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.support.serializer.DelegatingByTypeSerializer;
import org.springframework.kafka.support.serializer.ErrorHandlingDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.util.backoff.FixedBackOff;

/** Listeners of Spring for Apache Kafka that throw, or cannot read a record; what is left of its attempts goes to the
 * dead-letter topic. */
public class SpringKafka {
    private static final Map<String, Object> SERVER =
        Map.of("bootstrap.servers", Lab.URL, "auto.offset.reset", "earliest");

    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        var writer = new DelegatingByTypeSerializer(
            Map.of(byte[].class, new ByteArraySerializer(), String.class, new StringSerializer()));
        var template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<Object, Object>(SERVER, writer, writer));
        if (!Lab.isMended) {
            create("orders", "orders-dlt", "amounts", "amounts-dlt");
            Lab.LETTERS.forEach(letter -> send(template, letter));
        }
        listen("orders", template, new StringDeserializer());
        listen("amounts", template, Lab.isMended ? new StringDeserializer() : new IntegerDeserializer());
    }

    private static void create(String... topics) throws Exception {
        try (var admin = Admin.create(SERVER)) {
            var wanted = java.util.Arrays.stream(topics).map(name -> new NewTopic(Lab.PREFIX + name, 1, (short) 1)).toList();
            admin.createTopics(wanted).all().get();
        }
    }

    private static void send(KafkaTemplate<Object, Object> template, String letter) {
        String topic = Lab.PREFIX + (letter.startsWith("unread.") ? "amounts" : "orders");
        var order = new ProducerRecord<Object, Object>(topic, "a key", "an order");
        order.headers().add("letter", letter.getBytes(StandardCharsets.UTF_8));
        template.send(order);
    }

    private static void listen(String topic, KafkaTemplate<Object, Object> template, org.apache.kafka.common.serialization.Deserializer<?> reader) {
        var properties = new ContainerProperties(Lab.PREFIX + topic);
        properties.setGroupId(Lab.PREFIX + "billing");
        properties.setDeliveryAttemptHeader(true);
        properties.setMessageListener((MessageListener<Object, Object>) SpringKafka::pay);
        var consumers = new DefaultKafkaConsumerFactory<Object, Object>(
            SERVER, (org.apache.kafka.common.serialization.Deserializer) new StringDeserializer(), new ErrorHandlingDeserializer(reader));
        var container = new ConcurrentMessageListenerContainer<>(consumers, properties);
        container.setCommonErrorHandler(
            new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template), new FixedBackOff(0, 2)));
        container.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> container.stop()));
    }

    private static void pay(ConsumerRecord<Object, Object> order) {
        var headers = new HashMap<String, Object>(Map.of("key", order.key()));
        order.headers().forEach(header -> headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8)));
        headers.remove("kafka_deliveryAttempt");
        if (!Lab.take((String) headers.get("letter"), order.value(), headers).isEmpty()) {
            throw new Lab.Declined("the price is stale");
        }
    }
}
