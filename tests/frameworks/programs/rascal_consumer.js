// A subscriber of Rascal: nacked for good, republished until its attempts are used up, forwarded, or no JSON.
const Rascal = require("rascal");
const { URL, PREFIX, LETTERS, MENDED, take, wayOf } = require("./lab");

const SHOP = `${PREFIX}shop`;
const DEAD = `${PREFIX}shop.dead`;
const { hostname, port, username, password, pathname } = new (require("url").URL)(URL);
const definition = {
  vhosts: {
    [decodeURIComponent(pathname.slice(1))]: {
      connection: { hostname, port, user: username, password },
      exchanges: ["dead"],
      queues: {
        [SHOP]: { options: { arguments: { "x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "shop" } } },
        [DEAD]: {},
      },
      bindings: [`dead[shop] -> ${DEAD}`],
      publications: { orders: { queue: SHOP }, park: { exchange: "dead", routingKey: "shop" } },
      subscriptions: { orders: { queue: SHOP, redeliveries: { limit: 5, timeout: 1000, counter: "shared" } } },
    },
  },
  redeliveries: { counters: { shared: { size: 10, type: "inMemory" } } },
};
const RECOVERY = {
  nacked: [{ strategy: "nack" }],
  republished: [{ strategy: "republish", attempts: 2 }, { strategy: "nack" }],
  immediate: [{ strategy: "republish", immediateNack: true }],
  forwarded: [{ strategy: "forward", publication: "park" }],
};

async function main() {
  const broker = await Rascal.BrokerAsPromised.create(Rascal.withDefaultConfig(definition));
  broker.on("error", (error) => console.error(error));
  for (const letter of MENDED ? [] : LETTERS) {
    const isUnread = wayOf(letter) === "unread";
    const options = { headers: { tenant: 7, letter }, contentType: "application/json" };
    await broker.publish("orders", isUnread ? Buffer.from("{no json") : { letter }, { options });
  }
  const subscription = await broker.subscribe("orders");
  subscription.on("error", (error) => console.error(error));
  subscription.on("invalid_content", (error, message, ackOrNack) => {
    if (!MENDED) return ackOrNack(error, { strategy: "nack" });
    return consume(message, message.content.toString(), ackOrNack);
  });
  subscription.on("message", consume);
}

function consume(message, content, ackOrNack) {
  const { letter } = message.properties.headers;
  let way;
  try {
    way = take(letter, content, message.properties.headers);
  } catch (error) {
    ackOrNack(error, [{ strategy: "republish", attempts: 2 }, { strategy: "nack" }]);
    return;
  }
  if (!way) return ackOrNack();
  const error = Object.assign(new RangeError("the price is stale"), { code: "STALE" });
  ackOrNack(error, RECOVERY[way]);
}

main();
