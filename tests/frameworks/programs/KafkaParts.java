import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import lab.Lab;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.runtime.standalone.StandaloneHerder;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.storage.FileOffsetBackingStore;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/** Streams and Connect, with the dead-letter topics that they have: `streams` or `connect`. What processes a record or
 * sinks it fails, or what reads it. */
public class KafkaParts {
    private static final Map<String, Object> SERVER = Map.of("bootstrap.servers", Lab.URL);
    private static final String JSON = "org.apache.kafka.connect.json.JsonConverter";
    private static final String BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter";

    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        if (!Lab.isMended) {
            create("orders", "stock", "dead");
            send();
        }
        if (words[1].equals("streams")) {
            stream();
        } else {
            connect();
        }
        Thread.currentThread().join();
    }

    private static void create(String... topics) throws Exception {
        try (var admin = Admin.create(SERVER)) {
            var wanted = Stream.of(topics).map(name -> new NewTopic(Lab.PREFIX + name, 1, (short) 1)).toList();
            admin.createTopics(wanted).all().get();
        }
    }

    private static void send() {
        try (var producer = new KafkaProducer<>(SERVER, new StringSerializer(), new StringSerializer())) {
            for (String letter : Lab.LETTERS) {
                String topic = Lab.PREFIX + (letter.startsWith("unread.") ? "stock" : "orders");
                var order = new ProducerRecord<>(topic, "a key", "an order");
                order.headers().add("letter", letter.getBytes(StandardCharsets.UTF_8));
                order.headers().add("tenant", "7".getBytes(StandardCharsets.UTF_8));
                producer.send(order);
            }
        }
    }

    /** How it shall die; "" where it was handled. */
    private static String take(byte[] key, byte[] body, Map<String, Object> headers) {
        headers.put("key", text(key));
        return Lab.take((String) headers.get("letter"), text(body), headers);
    }

    private static String text(Object bytes) {
        return new String((byte[]) bytes, StandardCharsets.UTF_8);
    }

    private static void stream() throws Exception {
        var settings = new Properties();
        settings.putAll(SERVER);
        settings.putAll(Map.of(
            "application.id", Lab.PREFIX + "billing",
            "state.dir", Files.createTempDirectory(Path.of("."), "state").toString(),
            "auto.offset.reset", "earliest",
            "commit.interval.ms", 10,
            "errors.dead.letter.queue.topic.name", Lab.PREFIX + "dead",
            "processing.exception.handler", LogAndContinueProcessingExceptionHandler.class.getName(),
            "deserialization.exception.handler", LogAndContinueExceptionHandler.class.getName()));
        var builder = new StreamsBuilder();
        Serde<?> reader = Lab.isMended ? Serdes.ByteArray() : Serdes.Integer();
        builder.stream(Lab.PREFIX + "orders", Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())).process(Billing::new);
        builder.stream(Lab.PREFIX + "stock", Consumed.with(Serdes.ByteArray(), reader)).process(Billing::new);
        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(2))));
        streams.start();
    }

    /** Streams gives a record once: what goes away by itself is tried again here. */
    private static class Billing<V> extends ContextualProcessor<byte[], V, Void, Void> {
        @Override
        public void process(Record<byte[], V> order) {
            var headers = new HashMap<String, Object>();
            order.headers().forEach(header -> headers.put(header.key(), text(header.value())));
            String way;
            try {
                way = take(order.key(), (byte[]) order.value(), headers);
            } catch (IllegalStateException hiccup) {
                way = take(order.key(), (byte[]) order.value(), headers);
            }
            if (!way.isEmpty()) {
                throw new Lab.Declined("the price is stale");
            }
        }
    }

    private static void connect() throws Exception {
        var settings = new HashMap<>(Map.of(
            "bootstrap.servers", Lab.URL,
            "plugin.discovery", "service_load",
            "key.converter", BYTES,
            "value.converter", BYTES,
            "header.converter", BYTES,
            "offset.storage.file.filename", Files.createTempFile(Path.of("."), "offsets", "").toString(),
            "offset.flush.interval.ms", "50",
            "consumer.max.poll.records", "1", // what is tried again is a whole batch
            "consumer.auto.offset.reset", "earliest"));
        var plugins = new Plugins(settings);
        plugins.compareAndSwapWithDelegatingLoader();
        var config = new StandaloneConfig(settings);
        var policy = new AllConnectorClientConfigOverridePolicy();
        var offsets = new FileOffsetBackingStore(plugins.newInternalConverter(true, JSON, Map.of("schemas.enable", "false")));
        offsets.configure(config);
        var herder = new StandaloneHerder(new Worker("lab", Time.SYSTEM, plugins, config, offsets, policy), "lab", policy);
        herder.start();
        Runtime.getRuntime().addShutdownHook(new Thread(herder::stop));
        sink(herder, "orders", BYTES);
        sink(herder, "stock", Lab.isMended ? BYTES : JSON);
    }

    private static void sink(StandaloneHerder herder, String topic, String converter) {
        var settings = new HashMap<>(Map.of(
            "name", Lab.PREFIX + topic,
            "connector.class", Sink.class.getName(),
            "tasks.max", "1",
            "topics", Lab.PREFIX + topic,
            "value.converter", converter,
            "value.converter.schemas.enable", "false",
            "errors.tolerance", "all",
            "errors.deadletterqueue.topic.name", Lab.PREFIX + "dead",
            "errors.deadletterqueue.topic.replication.factor", "1",
            "errors.deadletterqueue.context.headers.enable", "true"));
        herder.putConnectorConfig(Lab.PREFIX + topic, settings, false, (error, created) -> {
            if (error != null) {
                throw new IllegalStateException(error);
            }
        });
    }

    public static class Sink extends SinkConnector {
        private Map<String, String> settings;

        @Override public void start(Map<String, String> settings) { this.settings = settings; }
        @Override public void stop() { }
        @Override public String version() { return "1"; }
        @Override public Class<? extends Task> taskClass() { return Paying.class; }
        @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(settings); }
        @Override public ConfigDef config() { return new ConfigDef(); }
    }

    public static class Paying extends SinkTask {
        @Override public void start(Map<String, String> settings) { }
        @Override public void stop() { }
        @Override public String version() { return "1"; }

        @Override
        public void put(Collection<SinkRecord> orders) {
            for (SinkRecord order : orders) {
                var headers = new HashMap<String, Object>();
                order.headers().forEach(header -> headers.put(header.key(), text(header.value())));
                try {
                    if (!take((byte[]) order.key(), (byte[]) order.value(), headers).isEmpty()) {
                        context.errantRecordReporter().report(order, new DataException("the price is stale"));
                    }
                } catch (IllegalStateException hiccup) {
                    throw new RetriableException(hiccup);
                }
            }
        }
    }
}
