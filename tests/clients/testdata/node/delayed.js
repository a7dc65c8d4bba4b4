// What code does that was written for RabbitMQ's delayed message exchange, with amqplib. It prints a line for each thing that went as it
// should.
'use strict';
const assert = require('node:assert/strict');
const {once} = require('node:events');
const amqp = require('amqplib');

const delays = [500, 100, 300, 200, 100, 400];
const brief = 90; // ms: less than any two delays are apart

// received resolves to a queue's next n messages, with when they came.
function received(channel, queue, n) {
  return new Promise((resolve, reject) => {
    const all = [];
    const consumerTag = `take ${n}`;
    channel.consume(queue, (message) => {
      all.push({message, at: Date.now()});
      if (all.length === n) channel.cancel(consumerTag).then(() => resolve(all), reject);
    }, {noAck: true, consumerTag}).catch(reject);
  });
}

// burst publishes all at once, and again if that took so long that the order is uncertain.
async function burst(channel) {
  for (;;) {
    const sent = Date.now();
    for (const delay of delays) channel.publish('later', 'key', Buffer.from(`${delay}`), {headers: {'x-delay': delay}});
    await channel.waitForConfirms();
    const took = Date.now() - sent;
    const all = await received(channel, 'work', delays.length);
    for (const {message, at} of all) {
      const delay = Number(message.content);
      assert.ok(at - sent >= delay, `${delay} came after ${at - sent} ms`);
      assert.equal(message.properties.headers['x-delay'], -delay);
    }
    if (took < brief) return all.map(({message}) => `${message.content}`);
  }
}

async function refused(connection, act) {
  const channel = await connection.createChannel();
  const failed = once(channel, 'error');
  await act(channel).catch(() => {});
  const [error] = await failed;
  assert.equal(error.code, 406);
  return error.message.replace(/^.*?PRECONDITION_FAILED/, 'PRECONDITION_FAILED').replace(/"$/, '');
}

async function main(connection) {
  const channel = await connection.createConfirmChannel();
  const declare = (on, type) => on.assertExchange('later', 'x-delayed-message', {durable: true, arguments: type && {'x-delayed-type': type}});
  await declare(channel, 'direct');
  await declare(channel, 'direct');
  await channel.assertQueue('work');
  await channel.bindQueue('work', 'later', 'key');
  console.log('declared, and declared again');
  console.log(`came in order: ${await burst(channel)}`);

  channel.publish('later', 'key', Buffer.from('now'));
  const [{message}] = await received(channel, 'work', 1);
  assert.equal(`${message.content}`, 'now');
  console.log('without a delay: now');

  const sent = Date.now();
  channel.sendToQueue('work', Buffer.from('held'), {headers: {'x-deliver-after': 150}});
  channel.sendToQueue('work', Buffer.from('passes'));
  const [first, second] = await received(channel, 'work', 2);
  assert.equal(`${first.message.content}, ${second.message.content}`, 'passes, held');
  assert.ok(second.at - sent >= 150, 'the held one came early');
  console.log('held in its queue, and passed by others');

  console.log(await refused(connection, (other) => declare(other, 'fanout')));
  console.log(await refused(connection, (other) => other.assertExchange('typeless', 'x-delayed-message')));
  await channel.deleteExchange('later');
}

(async () => {
  const connection = await amqp.connect(process.argv[2]);
  await main(connection);
  await connection.close();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
