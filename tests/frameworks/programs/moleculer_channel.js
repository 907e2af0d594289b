// A channel of Moleculer on RabbitMQ whose handler fails as often as it may.
const { ServiceBroker } = require("moleculer");
const Channels = require("@moleculer/channels");
const { URL, PREFIX, LETTERS, MENDED, take } = require("./lab");

class StaleError extends Error {
  name = "StaleError";
}

async function main() {
  const adapter = { type: "AMQP", options: { amqp: { url: URL, exchangeOptions: {}, queueOptions: {} } } };
  const broker = new ServiceBroker({
    logger: { type: "Console", options: { level: "error" } },
    middlewares: [Channels.Middleware({ adapter })],
  });
  broker.createService({
    name: "billing",
    channels: {
      [`${PREFIX}orders`]: {
        group: "billing",
        maxRetries: 2,
        deadLettering: { enabled: true, queueName: `${PREFIX}shop.dead` },
        async handler(order) {
          if (take(order.letter, order, {})) throw new StaleError("the price is stale");
        },
      },
    },
  });
  await broker.start();
  for (const letter of MENDED ? [] : LETTERS) {
    await broker.sendToChannel(`${PREFIX}orders`, { letter });
  }
}

main();
