// What a user of amqplib does, one flow after another. Each prints its name when it went as it should.
'use strict';
const assert = require('node:assert/strict');
const {once} = require('node:events');
const amqp = require('amqplib');

const url = process.argv[2];
const hour = 3600000;
const text = (message) => message.content.toString();

// get waits for a message in a queue.
async function get(channel, queue) {
  for (;;) {
    const message = await channel.get(queue, {noAck: true});
    if (message) return message;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// refusal is the error that the broker closes the channel with.
async function refusal(connection, act) {
  const channel = await connection.createChannel();
  const failed = once(channel, 'error');
  await Promise.resolve(act(channel)).catch(() => {});
  const [error] = await failed;
  return error;
}

const flows = {
  async 'a short life behind a long one'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('dead');
    await channel.assertQueue('work', {deadLetterExchange: '', deadLetterRoutingKey: 'dead'});
    const sent = Date.now();
    channel.sendToQueue('work', Buffer.from('patient'), {expiration: hour});
    channel.sendToQueue('work', Buffer.from('urgent'), {expiration: 200, headers: {colour: 'red'}});
    const message = await get(channel, 'dead');
    assert.equal(text(message), 'urgent');
    assert.ok(Date.now() - sent >= 200, 'early');
    const {headers, expiration} = message.properties;
    assert.equal(expiration, undefined);
    assert.equal(headers.colour, 'red');
    const [death] = headers['x-death'];
    assert.deepEqual({...death, time: undefined}, {
      'original-expiration': '200', count: 1, reason: 'expired', queue: 'work', time: undefined, exchange: '', 'routing-keys': ['work'],
    });
    assert.ok(Math.abs(death.time.value - sent / 1000) < 60, 'time of death');
    assert.equal(headers['x-first-death-reason'], 'expired');
    assert.equal((await channel.checkQueue('work')).messageCount, 1);
  },

  async 'a reply queue that expires'(connection) {
    const channel = await connection.createChannel();
    const {queue: requests} = await channel.assertQueue('requests');
    const {queue: replies} = await channel.assertQueue('', {expires: 2000});
    assert.match(replies, /^amq\.gen-/);
    await channel.consume(requests, (message) => {
      const {replyTo, correlationId} = message.properties;
      channel.sendToQueue(replyTo, Buffer.from(`re: ${text(message)}`), {correlationId});
    }, {noAck: true});
    channel.sendToQueue(requests, Buffer.from('question'), {replyTo: replies, correlationId: '7'});
    const answer = await get(channel, replies);
    assert.equal(text(answer), 're: question');
    assert.equal(answer.properties.correlationId, '7');
    await new Promise((resolve) => setTimeout(resolve, 5000)); // asking would renew the lease
    const error = await refusal(connection, (other) => other.checkQueue(replies));
    assert.equal(error.code, 404);
    assert.match(error.message, new RegExp(`NOT_FOUND - no queue '${replies}' in vhost '/'`));
  },

  async 'confirms and returns'(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('confirmed');
    const returned = once(channel, 'return');
    for (let i = 0; i < 100; i++) channel.sendToQueue('confirmed', Buffer.from(`${i}`), {persistent: true});
    channel.publish('', 'nowhere', Buffer.from('lost'), {mandatory: true});
    await channel.waitForConfirms();
    const [message] = await returned;
    assert.equal(message.fields.replyCode, 312);
    assert.equal((await channel.checkQueue('confirmed')).messageCount, 100);
  },

  async 'a full queue says no'(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue('full', {maxLength: 1, overflow: 'reject-publish'});
    channel.sendToQueue('full', Buffer.from('one'));
    await channel.waitForConfirms();
    channel.sendToQueue('full', Buffer.from('two'));
    await assert.rejects(channel.waitForConfirms());
  },

  async 'acknowledgements'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('acks');
    await channel.prefetch(2);
    for (const body of ['one', 'two', 'three']) channel.sendToQueue('acks', Buffer.from(body));
    const seen = [];
    await new Promise((resolve) => channel.consume('acks', (message) => {
      seen.push(text(message) + (message.fields.redelivered ? ' again' : ''));
      if (seen.length === 2) channel.nack(message, true, true); // both, back to the queue
      if (seen.length > 2) channel.ack(message);
      if (seen.length === 5) resolve();
    }));
    assert.deepEqual(seen, ['one', 'two', 'one again', 'two again', 'three']);
  },

  async 'exchanges'(connection) {
    const channel = await connection.createChannel();
    await channel.assertExchange('strays', 'fanout');
    await channel.assertExchange('news', 'topic', {alternateExchange: 'strays'});
    await channel.assertExchange('copies', 'headers');
    await channel.bindExchange('copies', 'news', '#');
    for (const queue of ['weather', 'red', 'stray']) await channel.assertQueue(queue);
    await channel.bindQueue('weather', 'news', 'weather.*');
    await channel.bindQueue('red', 'copies', '', {'x-match': 'all', colour: 'red'});
    await channel.bindQueue('stray', 'strays', '');
    channel.publish('news', 'weather.today', Buffer.from('rain'), {headers: {colour: 'red'}});
    for (const queue of ['weather', 'red']) assert.equal(text(await get(channel, queue)), 'rain');
    await channel.unbindExchange('copies', 'news', '#');
    channel.publish('news', 'sports', Buffer.from('goal'));
    assert.equal(text(await get(channel, 'stray')), 'goal');
  },

  async 'priorities'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('prio', {maxPriority: 10});
    channel.sendToQueue('prio', Buffer.from('low'), {priority: 1});
    channel.sendToQueue('prio', Buffer.from('high'), {priority: 9});
    assert.equal(text(await get(channel, 'prio')), 'high');
    assert.equal(text(await get(channel, 'prio')), 'low');
  },

  async 'a consumer is told that its queue is gone'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('going');
    const told = new Promise((resolve) => channel.consume('going', resolve));
    await channel.checkQueue('going');
    await channel.deleteQueue('going');
    assert.equal(await told, null);
  },

  async 'headers keep their types'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('typed');
    const headers = {
      text: 'ü', number: 7, large: 2 ** 40, negative: -1, fraction: 1.5, yes: true, none: null, list: [1, 'two', [3]], table: {in: {side: 1}},
    };
    channel.sendToQueue('typed', Buffer.alloc(300000, 'x'), {headers, contentType: 'text/plain', timestamp: 1700000000, type: 't', appId: 'a'});
    const message = await get(channel, 'typed');
    assert.deepEqual(message.properties.headers, headers);
    assert.equal(message.content.length, 300000);
    assert.equal(message.properties.timestamp, 1700000000);
    assert.equal(message.properties.appId, 'a');
  },

  async 'refusals'(connection) {
    const channel = await connection.createChannel();
    await channel.assertQueue('mine', {messageTtl: 1000});
    const error = await refusal(connection, (other) => other.assertQueue('mine', {messageTtl: 2000}));
    assert.match(error.message, /PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'mine' in vhost '\/': received '2000' but current is '1000'/);
    const expiry = await refusal(connection, (other) => other.sendToQueue('mine', Buffer.from(''), {expiration: 'soon'}));
    assert.match(expiry.message, /PRECONDITION_FAILED - invalid expiration 'soon': no_integer/);
  },
};

(async () => {
  for (const [name, flow] of Object.entries(flows)) {
    const connection = await amqp.connect(url);
    await flow(connection);
    await connection.close();
    console.log(name);
  }
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
