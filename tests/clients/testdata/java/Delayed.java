import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

// What code does that was written for RabbitMQ's delayed message exchange, with RabbitMQ's client for Java. It prints a line for each
// thing that went as it should.
final class Delayed {
    private static final int[] DELAYS = {500, 100, 300, 200, 100, 400};
    private static final long BRIEF = 90; // ms: less than any two delays are apart

    private static final class Received {
        private final String body;
        private final Map<String, Object> headers;
        private final long at = System.currentTimeMillis();

        Received(String body, Map<String, Object> headers) {
            this.body = body;
            this.headers = headers;
        }
    }

    private final Connection connection;
    private final Channel channel;
    private final BlockingQueue<Received> arrivals = new LinkedBlockingQueue<>();

    private Delayed(Connection connection) throws IOException {
        this.connection = connection;
        channel = connection.createChannel();
        channel.confirmSelect();
    }

    private static void declare(Channel on, String type) throws IOException {
        on.exchangeDeclare("later", "x-delayed-message", true, false, Collections.<String, Object>singletonMap("x-delayed-type", type));
    }

    private static AMQP.BasicProperties with(String header, Object value) {
        Map<String, Object> headers = new HashMap<>();
        headers.put(header, value);
        return new AMQP.BasicProperties.Builder().headers(headers).build();
    }

    private Received next() throws InterruptedException {
        Received r = arrivals.poll(2, TimeUnit.MINUTES);
        check(r != null, "nothing came");
        return r;
    }

    private static void check(boolean so, String otherwise) {
        if (!so) {
            throw new AssertionError(otherwise);
        }
    }

    // Publishes all at once, and again if that took so long that the order is uncertain.
    private String burst() throws Exception {
        for (;;) {
            long sent = System.currentTimeMillis();
            for (int delay : DELAYS) {
                channel.basicPublish("later", "key", with("x-delay", delay), String.valueOf(delay).getBytes());
            }
            channel.waitForConfirmsOrDie();
            long took = System.currentTimeMillis() - sent;
            List<String> order = new ArrayList<>();
            for (int i = 0; i < DELAYS.length; i++) {
                Received r = next();
                int delay = Integer.parseInt(r.body);
                check(r.at - sent >= delay, r.body + " came after " + (r.at - sent) + " ms");
                check(Integer.valueOf(-delay).equals(r.headers.get("x-delay")), "x-delay is " + r.headers.get("x-delay"));
                order.add(r.body);
            }
            if (took < BRIEF) {
                return String.join(",", order);
            }
        }
    }

    private interface Act {
        void on(Channel other) throws IOException;
    }

    private String refused(Act act) throws IOException {
        try {
            act.on(connection.createChannel());
        } catch (IOException e) {
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) e.getCause()).getReason();
            check(close.getReplyCode() == 406, close.toString());
            return close.getReplyText();
        }
        throw new AssertionError("taken");
    }

    private void run() throws Exception {
        declare(channel, "direct");
        declare(channel, "direct");
        channel.queueDeclare("work", true, false, false, null);
        channel.queueBind("work", "later", "key");
        channel.basicConsume("work", true, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
                arrivals.add(new Received(new String(body), properties.getHeaders()));
            }
        });
        System.out.println("declared, and declared again");
        System.out.println("came in order: " + burst());

        channel.basicPublish("later", "key", null, "now".getBytes());
        check(next().body.equals("now"), "another message came");
        System.out.println("without a delay: now");

        long sent = System.currentTimeMillis();
        channel.basicPublish("", "work", with("x-deliver-after", 150L), "held".getBytes());
        channel.basicPublish("", "work", null, "passes".getBytes());
        check(next().body.equals("passes"), "the held one came first");
        Received held = next();
        check(held.body.equals("held") && held.at - sent >= 150, held.body + " came after " + (held.at - sent) + " ms");
        System.out.println("held in its queue, and passed by others");

        System.out.println(refused(other -> declare(other, "fanout")));
        System.out.println(refused(other -> other.exchangeDeclare("typeless", "x-delayed-message", true)));
        channel.exchangeDelete("later");
    }

    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(args[0]);
        Connection connection = factory.newConnection();
        try {
            new Delayed(connection).run();
        } finally {
            connection.close();
        }
    }
}
