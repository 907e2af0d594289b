import java.io.File;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.xml.parsers.DocumentBuilderFactory;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.TransportConnector;
import org.apache.activemq.broker.region.DestinationInterceptor;
import org.apache.activemq.broker.region.policy.*;
import org.apache.activemq.broker.region.virtual.*;
import org.apache.activemq.broker.util.RedeliveryPlugin;
import org.apache.activemq.broker.util.TimeStampingBrokerPlugin;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.plugin.DiscardingDLQBrokerPlugin;
import org.apache.activemq.plugin.StatisticsBrokerPlugin;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.AuthorizationEntry;
import org.apache.activemq.security.AuthorizationPlugin;
import org.apache.activemq.security.DefaultAuthorizationMap;
import org.apache.activemq.security.SimpleAuthenticationPlugin;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;
import org.w3c.dom.*;

/**
 * An ActiveMQ Classic broker of plain jars, 5.x and 6.x alike; it runs until its standard input ends.
 * java -cp 'lib/*' ActiveMqBroker.java DIR STOMP OPENWIRE [plugins] [users [rights [markers]]] [tls=PORT] [openwire-tls=PORT] [amqp=PORT] [one=PORT] [bridge=PORT] [xml=FILE]
 */
public class ActiveMqBroker {
    static PolicyEntry policy(String queue, DeadLetterStrategy dead) {
        PolicyEntry entry = new PolicyEntry();
        entry.setQueue(queue);
        entry.setExpireMessagesPeriod(1000);
        if (dead != null) entry.setDeadLetterStrategy(dead);
        return entry;
    }

    static void listen(BrokerService broker, String uri) throws Exception {
        TransportConnector connector = new TransportConnector();
        connector.setUri(new URI(uri));             // bound when it starts: not while it waits for another's store
        broker.addConnector(connector);
    }

    static AuthorizationEntry rightsTo(String name, boolean topic) throws Exception {
        AuthorizationEntry entry = new AuthorizationEntry();
        if (topic) entry.setTopic(name); else entry.setQueue(name);
        entry.setRead("users");
        entry.setWrite("users");
        entry.setAdmin("users");
        return entry;
    }

    /** As XBean does: an element is a class, its attributes are properties. */
    static <T> T configured(T bean, Element element) throws Exception {
        NamedNodeMap attributes = element.getAttributes();
        for (int i = 0; i < attributes.getLength(); i++) {
            String name = attributes.item(i).getNodeName(), text = attributes.item(i).getNodeValue();
            for (java.lang.reflect.Method method : bean.getClass().getMethods()) {
                if (!method.getName().equals("set" + Character.toUpperCase(name.charAt(0)) + name.substring(1))) continue;
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(bean, type == boolean.class ? Boolean.valueOf(text) : type == long.class ? Long.valueOf(text)
                        : type == ActiveMQDestination.class ? ActiveMQDestination.createDestination(text, ActiveMQDestination.QUEUE_TYPE)
                        : type == int.class ? Integer.valueOf(text) : text);
            }
        }
        return bean;
    }

    static PolicyEntry entry(Element element) throws Exception {
        PolicyEntry entry = configured(new PolicyEntry(), element);
        entry.setExpireMessagesPeriod(100);
        NodeList strategies = element.getElementsByTagName("deadLetterStrategy");
        for (int i = 0; i < strategies.getLength(); i++) {
            Element one = (Element) ((Element) strategies.item(i)).getElementsByTagName("*").item(0);
            entry.setDeadLetterStrategy(configured(one.getTagName().startsWith("shared") ? new SharedDeadLetterStrategy()
                    : one.getTagName().startsWith("individual") ? new IndividualDeadLetterStrategy() : new DiscardingDeadLetterStrategy(), one));
        }
        return entry;
    }

    /** The policies, and the plugin that discards, of an activemq.xml. */
    static void configure(BrokerService broker, File xml) throws Exception {
        Document document = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(xml);
        NodeList entries = document.getElementsByTagName("policyEntry"), plugins = document.getElementsByTagName("discardingDLQBrokerPlugin");
        PolicyMap map = new PolicyMap();
        List<PolicyEntry> all = new ArrayList<>();
        for (int i = 0; i < entries.getLength(); i++) {
            Element element = (Element) entries.item(i);
            if (element.getParentNode().getNodeName().equals("defaultEntry")) map.setDefaultEntry(entry(element));
            else all.add(entry(element));
        }
        map.setPolicyEntries(all);
        broker.setDestinationPolicy(map);
        if (plugins.getLength() > 0)
            broker.setPlugins(new BrokerPlugin[] {configured(new DiscardingDLQBrokerPlugin(), (Element) plugins.item(0))});
    }

    public static void main(String[] args) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("test");
        broker.setDataDirectory(args[0]);
        broker.setSchedulerSupport(true);           // redeliveryPlugin and AMQ_SCHEDULED_* need it
        broker.setUseJmx(true);
        broker.getManagementContext().setCreateConnector(false);
        broker.getSystemUsage().getMemoryUsage().setLimit(256L << 20);
        broker.getSystemUsage().getStoreUsage().setLimit(8L << 30);
        broker.getSystemUsage().getTempUsage().setLimit(1L << 30);
        broker.getSystemUsage().getJobSchedulerUsage().setLimit(1L << 30);
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(args[0], "kahadb"));
        store.getLocker().setLockAcquireSleepInterval(200);   // of a broker that waits for another's store
        broker.setPersistenceAdapter(store);

        IndividualDeadLetterStrategy individual = new IndividualDeadLetterStrategy();
        individual.setQueuePrefix("DLQ.");
        individual.setProcessNonPersistent(true);
        SharedDeadLetterStrategy brief = new SharedDeadLetterStrategy();
        brief.setExpiration(5000);
        PolicyEntry small = policy("mem.>", null);
        small.setMemoryLimit(200 << 10);
        SharedDeadLetterStrategy stored = new SharedDeadLetterStrategy();
        PolicyEntry fromStore = policy("dup.>", stored);
        fromStore.setSendDuplicateFromStoreToDLQ(true);
        PolicyEntry slow = new PolicyEntry();
        slow.setTopic("slow.>");
        ConstantPendingMessageLimitStrategy one = new ConstantPendingMessageLimitStrategy();
        one.setLimit(1);
        slow.setPendingMessageLimitStrategy(one);
        PolicyMap map = new PolicyMap();            // no catch-all: it would cap every browse at 400
        map.setPolicyEntries(List.of(policy("indiv.>", individual), policy("ttl.>", null), policy("brief.>", brief), small,
                policy("rp.>", null), fromStore, slow));
        broker.setDestinationPolicy(map);

        RedeliveryPolicy again = new RedeliveryPolicy();
        again.setMaximumRedeliveries(2);
        again.setInitialRedeliveryDelay(1000);
        again.setRedeliveryDelay(1000);
        again.setQueue("rp.>");
        RedeliveryPlugin redelivery = new RedeliveryPlugin();
        RedeliveryPolicyMap policies = new RedeliveryPolicyMap();
        policies.setRedeliveryPolicyEntries(List.of(again));
        redelivery.setRedeliveryPolicyMap(policies);
        redelivery.setFallbackToDeadLetter(true);
        redelivery.setSendToDlqIfMaxRetriesExceeded(true);
        List<String> options = Arrays.asList(args).subList(3, args.length);
        List<BrokerPlugin> plugins = new ArrayList<>();
        if (options.contains("plugins")) plugins.addAll(List.of(new StatisticsBrokerPlugin(), redelivery));
        for (String option : options) if (option.startsWith("ttl=")) {
            TimeStampingBrokerPlugin ttl = new TimeStampingBrokerPlugin();
            ttl.setZeroExpirationOverride(Long.parseLong(option.substring(4)));
            plugins.add(ttl);
        }
        if (options.contains("users")) plugins.add(new SimpleAuthenticationPlugin(List.of(
                new AuthenticationUser("dlq", "right", "users"))));
        if (options.contains("rights")) plugins.add(new AuthorizationPlugin(new DefaultAuthorizationMap(List.of(
                rightsTo("letters.>", false), rightsTo(options.contains("markers") ? "dlq.replay.>" : "letters.>", false),
                rightsTo(">", true)))));
        broker.setPlugins(plugins.toArray(new BrokerPlugin[0]));
        for (String option : options) if (option.startsWith("xml=")) configure(broker, new File(option.substring(4)));
        for (String option : options) {             // -Djavax.net.ssl.keyStore names its certificate
            if (option.startsWith("tls=")) listen(broker, "stomp+ssl://127.0.0.1:" + option.substring(4));
            if (option.startsWith("openwire-tls=")) listen(broker, "ssl://127.0.0.1:" + option.substring(13));
            if (option.startsWith("one=")) listen(broker, "stomp://127.0.0.1:" + option.substring(4) + "?maximumConnections=1");
            if (option.startsWith("bridge=")) broker.addNetworkConnector("static:(tcp://127.0.0.1:" + option.substring(7) + ")");
            if (option.startsWith("amqp=")) listen(broker, "amqp://127.0.0.1:" + option.substring(5));
        }

        VirtualTopic nameless = new VirtualTopic();   // its queues' letters say the topic alone
        nameless.setName("Nameless.>");
        nameless.setPrefix("Of.*.");
        nameless.setSetOriginalDestination(false);
        VirtualDestinationInterceptor virtual = new VirtualDestinationInterceptor();
        virtual.setVirtualDestinations(new VirtualDestination[] {new VirtualTopic(), nameless});
        broker.setDestinationInterceptors(new DestinationInterceptor[] {virtual});
        String most = "";
        for (String option : options) if (option.startsWith("frame=")) most = "?wireFormat.maxFrameSize=" + option.substring(6);
        listen(broker, "tcp://127.0.0.1:" + args[2] + most);
        listen(broker, "stomp://127.0.0.1:" + args[1] + most);
        broker.start();
        broker.waitUntilStarted();
        while (System.in.read() >= 0) { }           // whoever started it is gone: end with it, leave no orphan
        broker.stop();
    }
}
