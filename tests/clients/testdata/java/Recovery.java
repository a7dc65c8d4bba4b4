import com.rabbitmq.client.Address;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

// A publisher and a consumer that outlive the nodes of a cluster, with the recovery of RabbitMQ's client for Java. Arguments: a queue,
// and the URL of each node.
final class Recovery {
    private static volatile boolean stopping;

    private static Connection connect(String[] args) throws Exception {
        List<Address> nodes = new ArrayList<>();
        ConnectionFactory factory = new ConnectionFactory();
        for (int i = 1; i < args.length; i++) {
            URI url = new URI(args[i]);
            nodes.add(new Address(url.getHost(), url.getPort()));
        }
        Collections.shuffle(nodes);
        factory.setRequestedHeartbeat(10); // seconds
        factory.setConnectionTimeout(20_000);
        factory.setHandshakeTimeout(20_000);
        factory.setNetworkRecoveryInterval(500);
        while (true) {
            try { // the first connection is not recovered
                return factory.newConnection(nodes);
            } catch (IOException | TimeoutException | ShutdownSignalException e) {
                System.err.println("connect: " + e);
                Thread.sleep(500);
            }
        }
    }

    private static void consume(Connection connection, String queue) throws IOException {
        final Channel channel = connection.createChannel();
        channel.queueDeclare(queue, true, false, false, null);
        channel.basicQos(100);
        channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) throws IOException {
                System.out.println("received " + new String(body));
                try {
                    channel.basicAck(envelope.getDeliveryTag(), false);
                } catch (AlreadyClosedException e) {
                    System.err.println("ack: " + e); // it is delivered again
                }
            }
        });
    }

    private static int publish(Connection connection, String queue) throws Exception {
        // A channel that was recovered in between confirms at once, because it does not know of messages of the one before.
        final AtomicInteger recoveries = new AtomicInteger();
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecoveryStarted(Recoverable r) {
                recoveries.incrementAndGet();
            }

            @Override
            public void handleRecovery(Recoverable r) {
            }
        });
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        channel.queueDeclare(queue, true, false, false, null);
        int published = 0;
        while (!stopping) {
            int before = recoveries.get();
            try {
                channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, Integer.toString(published).getBytes());
                if (channel.waitForConfirms(30_000) && recoveries.get() == before) {
                    System.out.println("confirmed " + published);
                    published++;
                }
                Thread.sleep(20);
            } catch (IOException | ShutdownSignalException | TimeoutException e) {
                System.err.println("publish: " + e);
                Thread.sleep(200);
            }
        }
        return published;
    }

    public static void main(String[] args) throws Exception {
        Thread stop = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException e) {
                System.err.println(e);
            }
            stopping = true;
        });
        stop.setDaemon(true);
        stop.start();
        consume(connect(args), args[0]);
        System.out.println("published " + publish(connect(args), args[0]));
        Thread.sleep(Long.MAX_VALUE); // the consumer goes on until the program is killed
    }
}
