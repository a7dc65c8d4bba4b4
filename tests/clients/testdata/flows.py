"""What a user of pika does, one flow after another. Each prints its name when it went as it should."""

import sys
import time

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

HOUR = "3600000"


def get(channel, queue):
    """Waits for a message in a queue."""
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method:
            return method, properties, body
        time.sleep(0.005)


def a_short_life_behind_a_long_one(connection):
    channel = connection.channel()
    channel.queue_declare("dead")
    channel.queue_declare("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    sent = time.time()
    channel.basic_publish("", "work", b"patient", pika.BasicProperties(expiration=HOUR))
    channel.basic_publish("", "work", b"urgent", pika.BasicProperties(expiration="200", delivery_mode=2))
    method, properties, body = get(channel, "dead")
    assert body == b"urgent" and time.time() - sent >= 0.2
    assert properties.expiration is None and properties.delivery_mode == 2
    (death,) = properties.headers["x-death"]
    died = death.pop("time")
    assert abs(died.timestamp() - sent) < 60 + 86400, died  # pika takes UTC for local time
    assert death == {
        "original-expiration": "200", "count": 1, "reason": "expired", "queue": "work", "exchange": "", "routing-keys": ["work"],
    }, death
    assert channel.queue_declare("work", passive=True).method.message_count == 1


def a_reply_queue_that_expires(connection):
    channel = connection.channel()
    replies = channel.queue_declare("", arguments={"x-expires": 300}).method.queue
    channel.basic_publish("", replies, b"answer")
    time.sleep(3)  # asking would renew the lease
    try:
        channel.queue_declare(replies, passive=True)
    except ChannelClosedByBroker as e:
        assert e.reply_code == 404 and e.reply_text == f"NOT_FOUND - no queue '{replies}' in vhost '/'", e
        return
    raise AssertionError("the queue is still there")


def direct_reply(connection):
    channel = connection.channel()
    channel.queue_declare("requests")
    answers = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *delivery: answers.append(delivery[3]), auto_ack=True)
    channel.basic_publish("", "requests", b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    server = connection.channel()
    _, properties, _ = get(server, "requests")
    server.basic_publish("", properties.reply_to, b"answer")
    while not answers:
        connection.process_data_events(time_limit=1)
    assert answers == [b"answer"]


def confirms(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", "full", b"one")
    for queue, error in ("full", NackError), ("nowhere", UnroutableError):
        try:
            channel.basic_publish("", queue, b"two", mandatory=True)
        except error:
            continue
        raise AssertionError(queue)


def transactions(connection):
    channel = connection.channel()
    channel.queue_declare("tx")
    channel.tx_select()
    channel.basic_publish("", "tx", b"never")
    channel.tx_rollback()
    channel.basic_publish("", "tx", b"done")
    channel.tx_commit()
    assert get(channel, "tx")[2] == b"done"


def consuming(connection):
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_qos(prefetch_count=1)
    for body in b"one", b"two":
        channel.basic_publish("", "q", body)
    seen = []
    for method, _, body in channel.consume("q"):
        seen.append((body, method.redelivered))
        if len(seen) == 1:
            channel.basic_reject(method.delivery_tag, requeue=True)
            continue
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 3:
            break
    assert seen == [(b"one", False), (b"one", True), (b"two", False)], seen
    channel.cancel()


def leases(connection):
    channel = connection.channel()
    channel.queue_declare("leased", arguments={"x-delivery-lease": 2000})
    channel.confirm_delivery()
    for body in b"left", b"kept":
        channel.basic_publish("", "leased", body)
    left, _, _ = channel.basic_get("leased")
    kept, _, _ = channel.basic_get("leased")
    extend = pika.BasicProperties(headers={"delivery-tag": kept.delivery_tag, "extend": 60000})
    channel.basic_publish("", "amq.lease", b"", extend, mandatory=True)
    other = connection.channel()
    method, _, body = other.basic_get("leased")
    assert method is None, body
    time.sleep(2.5)
    method, _, body = other.basic_get("leased")
    assert body == b"left" and method.redelivered, method
    channel.basic_ack(left.delivery_tag)  # too late: it is ignored
    channel.basic_ack(kept.delivery_tag)
    other.basic_ack(method.delivery_tag)
    try:
        channel.basic_publish("", "amq.lease", b"", extend, mandatory=True)
    except UnroutableError as e:
        assert e.messages[0].method.reply_code == 312, e
    else:
        raise AssertionError("the lease of a delivery that was settled is extended")
    time.sleep(2.5)
    assert channel.queue_declare("leased", passive=True).method.message_count == 0


for flow in (
    a_short_life_behind_a_long_one, a_reply_queue_that_expires, direct_reply, confirms, transactions, consuming, leases,
):
    with pika.BlockingConnection(pika.URLParameters(sys.argv[1])) as connection:
        flow(connection)
    print(flow.__name__.replace("_", " "))
