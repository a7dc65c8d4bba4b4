"""What code does that was written for RabbitMQ's delayed message exchange, with pika. It prints a line for each thing that went as it
should."""

import sys
import time

import pika
from pika.exceptions import ChannelClosedByBroker

DELAYS = 500, 100, 300, 200, 100, 400
BRIEF = 0.09  # seconds: less than any two delays are apart


def received(channel, n):
    """Returns the next n messages of the queue, with when they came."""
    found = []
    for _, properties, body in channel.consume("work", auto_ack=True):
        found.append((properties, body, time.time()))
        if len(found) == n:
            break
    channel.cancel()
    return found


def burst(connection):
    """Publishes all at once, and again if that took so long that the order is uncertain."""
    channel = connection.channel()
    while True:
        sent = time.time()
        for delay in DELAYS:
            channel.basic_publish("later", "key", str(delay).encode(), pika.BasicProperties(headers={"x-delay": delay}))
        channel.queue_declare("work", durable=True, passive=True)  # its answer comes after all were taken
        took = time.time() - sent
        found = received(channel, len(DELAYS))
        for properties, body, at in found:
            assert at - sent >= int(body) / 1000, f"{body} came after {at - sent} s"
            assert properties.headers["x-delay"] == -int(body), properties.headers
        if took < BRIEF:
            return [body.decode() for _, body, _ in found]


def declare(channel, **arguments):
    arguments = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=arguments)


def refused(connection, act):
    try:
        act(connection.channel())
    except ChannelClosedByBroker as e:
        assert e.reply_code == 406, e
        return e.reply_text
    raise AssertionError("taken")


with pika.BlockingConnection(pika.URLParameters(sys.argv[1])) as connection:
    channel = connection.channel()
    declare(channel, delayed_type="direct")
    declare(channel, delayed_type="direct")
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "later", "key")
    print("declared, and declared again")
    print("came in order:", ",".join(burst(connection)))

    channel.basic_publish("later", "key", b"now")
    assert received(channel, 1)[0][1] == b"now"
    print("without a delay: now")

    sent = time.time()
    channel.basic_publish("", "work", b"held", pika.BasicProperties(headers={"x-deliver-after": 150}))
    channel.basic_publish("", "work", b"passes")
    (_, first, _), (_, second, at) = received(channel, 2)
    assert (first, second) == (b"passes", b"held") and at - sent >= 0.15, (first, second, at - sent)
    print("held in its queue, and passed by others")

    print(refused(connection, lambda other: declare(other, delayed_type="fanout")))
    print(refused(connection, lambda other: other.exchange_declare("typeless", "x-delayed-message", durable=True)))
    channel.exchange_delete("later")
