import io.smallrye.reactive.messaging.amqp.IncomingAmqpMetadata;
import io.smallrye.reactive.messaging.amqp.OutgoingAmqpMetadata;
import jakarta.enterprise.context.Dependent;
import jakarta.inject.Inject;
import java.util.HashMap;
import java.util.concurrent.CompletionStage;
import lab.Lab;
import org.eclipse.microprofile.config.ConfigProvider;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Emitter;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.eclipse.microprofile.reactive.messaging.Metadata;
import org.jboss.weld.environment.se.Weld;

/** Channels of SmallRye Reactive Messaging that nack what they take: by the failure strategy `reject`, or by
 * `modified-failed` until the broker's limit. */
public class SmallRyeAmqp {
    public static void main(String[] words) throws Exception {
        Lab.isMended = words[0].equals("mended");
        String[] parts = Lab.URL.split("[:@]");
        System.setProperty("amqp-username", parts[0]);
        System.setProperty("amqp-password", parts[1]);
        System.setProperty("amqp-host", parts[2]);
        System.setProperty("amqp-port", parts[3]);
        configure("incoming.rejected", "shop", Lab.isMended ? "modified-failed" : "reject");
        configure("incoming.failed", "shop.failed", "modified-failed");
        configure("outgoing.orders", "shop", null);
        ConfigProvider.getConfig();  // without one that was made, its producers fail in some orders of beans
        var container = new Weld().addBeanClass(Shop.class).initialize();
        if (!Lab.isMended) {
            var shop = container.select(Shop.class).get();
            Lab.LETTERS.forEach(shop::send);
        }
        Thread.currentThread().join();
    }

    private static void configure(String channel, String queue, String strategy) {
        String name = "mp.messaging." + channel + ".";
        System.setProperty(name + "connector", "smallrye-amqp");
        System.setProperty(name + "address", Lab.PREFIX + queue);
        if (strategy != null) {
            System.setProperty(name + "failure-strategy", strategy);
        }
    }

    @Dependent
    public static class Shop {
        @Inject
        @Channel("orders")
        Emitter<String> orders;

        void send(String letter) {
            orders.send(Message.of("an order", Metadata.of(OutgoingAmqpMetadata.builder()
                .withAddress(Lab.PREFIX + (letter.startsWith("failed.") ? "shop.failed" : "shop"))
                .withApplicationProperty("letter", letter).withApplicationProperty("tenant", 7L)
                .withSubject("order").withMessageId("order " + letter).build())));
        }

        @Incoming("rejected")
        public CompletionStage<Void> pay(Message<String> order) {
            return take(order);
        }

        @Incoming("failed")
        public CompletionStage<Void> payAgain(Message<String> order) {
            return take(order);
        }

        private static CompletionStage<Void> take(Message<String> order) {
            var told = order.getMetadata(IncomingAmqpMetadata.class).orElseThrow();
            var headers = new HashMap<String, Object>(told.getProperties().getMap());
            headers.put("subject", told.getSubject());
            headers.put("message-id", told.getId());
            headers.put("content-type", told.getContentType());
            try {
                boolean isHandled = Lab.take((String) headers.get("letter"), order.getPayload(), headers).isEmpty();
                return isHandled ? order.ack() : order.nack(new Lab.Declined("the price is stale"));
            } catch (IllegalStateException hiccup) {
                return order.nack(hiccup);
            }
        }
    }
}
