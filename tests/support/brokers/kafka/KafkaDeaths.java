// Lets records die in real frameworks: java KafkaDeaths BOOTSTRAP PREFIX FOLDER. The topics PREFIX-spring,
// -typed, -retried, -streams and -connect, and those of their dead letters, must be there; it runs until it is killed.
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.errors.DataException;
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
    static String folder;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        System.setProperty("prefix", arguments[1]);
        folder = arguments[2];
        streams(arguments[1]);
        connect(arguments[1]);
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

    static void streams(String prefix) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "application.id", prefix + "-streams-app",
            "bootstrap.servers", bootstrap,
            "state.dir", folder,
            "auto.offset.reset", "earliest",
            "errors.dead.letter.queue.topic.name", prefix + "-streams-dead",
            "processing.exception.handler", LogAndContinueProcessingExceptionHandler.class.getName(),
            "deserialization.exception.handler", LogAndContinueExceptionHandler.class.getName()));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(prefix + "-streams", Consumed.with(Serdes.ByteArray(), Serdes.Integer()))
            .foreach((key, value) -> die(value));
        new KafkaStreams(builder.build(), settings).start();
    }

    static void connect(String prefix) {
        Map<String, String> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "plugin.discovery", "service_load",
            "key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter", "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable", "false",
            "offset.storage.file.filename", folder + "/offsets",
            "consumer.auto.offset.reset", "earliest");
        Plugins plugins = new Plugins(settings);
        plugins.compareAndSwapWithDelegatingLoader();
        StandaloneConfig config = new StandaloneConfig(settings);
        var policy = new AllConnectorClientConfigOverridePolicy();
        var offsets = new FileOffsetBackingStore(plugins.newInternalConverter(true, "org.apache.kafka.connect.json.JsonConverter", Map.of("schemas.enable", "false")));
        offsets.configure(config);
        StandaloneHerder herder = new StandaloneHerder(new Worker("tests", Time.SYSTEM, plugins, config, offsets, policy), "tests", policy);
        herder.start();
        Map<String, String> sink = new HashMap<>(Map.of(
            "name", "refusing-sink",
            "connector.class", Refusing.class.getName(),
            "tasks.max", "1",
            "topics", prefix + "-connect",
            "errors.tolerance", "all",
            "errors.deadletterqueue.topic.name", prefix + "-connect-dead",
            "errors.deadletterqueue.topic.replication.factor", "1",
            "errors.deadletterqueue.context.headers.enable", "true"));
        herder.putConnectorConfig("refusing-sink", sink, false, (error, created) -> {
            if (error != null) throw new IllegalStateException(error);
        });
    }

    public static class Refusing extends SinkConnector {
        private Map<String, String> settings;

        @Override public void start(Map<String, String> settings) { this.settings = settings; }
        @Override public void stop() { }
        @Override public String version() { return "1"; }
        @Override public Class<? extends Task> taskClass() { return RefusingTask.class; }
        @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(settings); }
        @Override public ConfigDef config() { return new ConfigDef(); }
    }

    public static class RefusingTask extends SinkTask {
        @Override public void start(Map<String, String> settings) { }
        @Override public void stop() { }
        @Override public String version() { return "1"; }

        @Override
        public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                context.errantRecordReporter().report(record, new DataException("no such account: " + record.value()));
            }
        }
    }
}
