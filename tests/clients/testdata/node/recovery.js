// A publisher and a consumer that outlive the nodes of a cluster, with amqplib below amqp-connection-manager. Arguments: a queue, and the
// URL of each node.
'use strict';
const manager = require('amqp-connection-manager');

const [queue, ...urls] = process.argv.slice(2);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function connect() {
  const connection = manager.connect(urls, {heartbeatIntervalInSeconds: 10, reconnectTimeInSeconds: 0.5, connectionOptions: {timeout: 20000}});
  connection.on('connectFailed', ({err, url}) => console.error(`${url}: ${err}`));
  connection.on('disconnect', ({err}) => console.error(`disconnected: ${err}`));
  return connection;
}

// What setup does is done again on each connection.
const consumer = connect().createChannel({
  async setup(channel) {
    await channel.assertQueue(queue, {durable: true});
    await channel.prefetch(100);
    await channel.consume(queue, (message) => {
      console.log('received', message.content.toString());
      channel.ack(message);
    });
  },
});
const publisher = connect().createChannel({setup: (channel) => channel.assertQueue(queue, {durable: true})});
for (const channel of [consumer, publisher]) channel.on('error', (error) => console.error(`${error}`));

let stopping = false;
process.stdin.resume().on('end', () => { stopping = true; });

(async () => {
  let published = 0;
  while (!stopping) {
    try {
      // It resolves once the message is confirmed. The library publishes it again on each connection until then.
      await publisher.sendToQueue(queue, Buffer.from(`${published}`), {persistent: true});
      console.log('confirmed', published);
      published++;
    } catch (error) {
      console.error(`${error}`);
    }
    await pause(20);
  }
  console.log('published', published); // the consumer goes on until the program is killed
})();
