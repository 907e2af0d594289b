// The official clients beside which dlq is measured: java KafkaBench BOOTSTRAP TOPIC COUNT consume|produce
// Both throw away what they read, and keep no books; the producer is idempotent, with a window of 4,000 records.
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaBench {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        double seconds = args[3].equals("consume") ? consume(args[0], args[1], count) : produce(args[0], args[1], count);
        System.out.printf("rate %.0f%n", count / seconds);
    }

    static double consume(String servers, String topic, int count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "max.poll.records", "2000", "isolation.level", "read_committed",
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition place = new TopicPartition(topic, 0);
            consumer.assign(List.of(place));
            consumer.seek(place, 0);
            long start = System.nanoTime(), got = 0, bytes = 0;
            while (got < count)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    got++;
                    bytes += record.value().length;
                    for (Header header : record.headers()) bytes += header.value().length;
                }
            if (bytes == 0) throw new IllegalStateException("nothing was read");
            return (System.nanoTime() - start) / 1e9;
        }
    }

    static double produce(String servers, String topic, int count) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "enable.idempotence", "true", "acks", "all", "linger.ms", "5",
            "batch.size", "1000000",
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        byte[] body = new byte[1024];
        new java.util.Random(1).nextBytes(body);
        List<Header> headers = List.of(
            new RecordHeader("traceparent", new byte[55]), new RecordHeader("dlq_replay_id", new byte[32]),
            new RecordHeader("dlq_replay_lap", new byte[1]), new RecordHeader("dlq_replay_of", new byte[32]));
        Semaphore window = new Semaphore(4000);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            long start = System.nanoTime();
            for (int number = 0; number < count; number++) {
                window.acquire();
                byte[] key = Integer.toString(number).getBytes();
                producer.send(new ProducerRecord<>(topic, null, key, body, headers), (answer, error) -> {
                    if (error != null) throw new IllegalStateException(error);
                    window.release();
                });
            }
            window.acquire(4000);
            return (System.nanoTime() - start) / 1e9;
        }
    }
}
