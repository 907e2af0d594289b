import java.time.Duration;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;

/** A gRPC consumer that takes messages and never acknowledges them: java RocketForgetful.java PROXY GROUP TOPIC. */
public class RocketForgetful {
    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
                .setClientConfiguration(ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
                        .setRequestTimeout(Duration.ofSeconds(30)).build())  // a loaded machine takes more than 3
                .setConsumerGroup(args[1])
                .setAwaitDuration(Duration.ofSeconds(10))
                .setSubscriptionExpressions(Map.of(args[2], FilterExpression.SUB_ALL))
                .build();
        while (true) System.out.println(consumer.receive(16, Duration.ofSeconds(10)));
    }
}
