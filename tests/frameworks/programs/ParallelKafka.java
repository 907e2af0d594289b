import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.RecordContext;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import lab.Lab;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Parallel Consumer, whose function throws until its own limit, and then sends the record to a dead-letter topic, as
 * its README shows. */
public class ParallelKafka {
    private static final int MOST_FAILURES = 2;
    private static final Map<String, Object> SERVER = Map.of("bootstrap.servers", Lab.URL);
    private static final KafkaProducer<String, String> PRODUCER =
        new KafkaProducer<>(SERVER, new StringSerializer(), new StringSerializer());

    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        if (!Lab.isMended) {
            try (var admin = Admin.create(SERVER)) {
                admin.createTopics(List.of(topic("orders"), topic("orders.dlq"))).all().get();
            }
            Lab.LETTERS.forEach(ParallelKafka::send);
        }
        var settings = new HashMap<>(SERVER);
        settings.putAll(Map.of(
            "group.id", Lab.PREFIX + "billing", "auto.offset.reset", "earliest", "enable.auto.commit", false));
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        var options = ParallelConsumerOptions.<String, String>builder()
            .consumer(consumer).maxConcurrency(2).ordering(ParallelConsumerOptions.ProcessingOrder.UNORDERED)
            .defaultMessageRetryDelay(Duration.ofMillis(20)).commitInterval(Duration.ofMillis(100)).build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(Lab.PREFIX + "orders"));
        processor.poll(context -> pay(context.getSingleRecord()));
        Runtime.getRuntime().addShutdownHook(new Thread(processor::close));
        Thread.currentThread().join();
    }

    private static NewTopic topic(String name) {
        return new NewTopic(Lab.PREFIX + name, 1, (short) 1);
    }

    private static void send(String letter) {
        var order = new ProducerRecord<>(Lab.PREFIX + "orders", "a key", "an order");
        order.headers().add("letter", letter.getBytes(StandardCharsets.UTF_8));
        PRODUCER.send(order);
    }

    private static void pay(RecordContext<String, String> order) {
        var headers = new HashMap<String, Object>(Map.of("key", order.key()));
        order.headers().forEach(header -> headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8)));
        if (Lab.take((String) headers.get("letter"), order.value(), headers).isEmpty()) {
            return;
        }
        var error = new Lab.Declined("the price is stale");
        if (order.getNumberOfFailedAttempts() < MOST_FAILURES) {
            throw error;
        }
        park(order, error);
    }

    private static void park(RecordContext<String, String> order, Exception error) {
        var dead = new ProducerRecord<>(Lab.PREFIX + "orders.dlq", null, order.key(), order.value(), order.headers());
        Map.of(
            "failure-class", error.getClass().getName(),
            "failure-message", error.getMessage(),
            "attempts", "" + (order.getNumberOfFailedAttempts() + 1),
            "source-topic", order.topic(),
            "source-partition", "" + order.partition(),
            "source-offset", "" + order.offset())
            .forEach((name, value) -> dead.headers().add(name, value.getBytes(StandardCharsets.UTF_8)));
        PRODUCER.send(dead);
        PRODUCER.flush();
    }
}
