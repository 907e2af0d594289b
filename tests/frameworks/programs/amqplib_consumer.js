// A consumer of amqplib that nacks, or parks a letter itself with what it knows of the failure.
const amqplib = require("amqplib");
const { URL, PREFIX, LETTERS, MENDED, take } = require("./lab");

const SHOP = `${PREFIX}shop`;
const DEAD = `${PREFIX}shop.dead`;

async function main() {
  const channel = await (await amqplib.connect(URL)).createChannel();
  await channel.assertQueue(DEAD);
  await channel.assertQueue(SHOP, { deadLetterExchange: "", deadLetterRoutingKey: DEAD });
  for (const letter of MENDED ? [] : LETTERS) {
    const options = { headers: { tenant: 7 }, persistent: true };
    channel.sendToQueue(SHOP, Buffer.from(JSON.stringify({ letter })), options);
  }
  await channel.consume(SHOP, (message) => {
    const body = message.content.toString();
    const { letter } = JSON.parse(body);
    let way;
    try {
      way = take(letter, body, message.properties.headers);
    } catch {
      channel.nack(message);
      return;
    }
    if (way === "nacked") {
      channel.nack(message, false, false);
      return;
    }
    if (way === "parked") park(channel, message, new RangeError("the price is stale"));
    channel.ack(message);
  });
}

// As many do it by hand.
function park(channel, message, error) {
  const headers = {
    ...message.properties.headers,
    "x-original-queue": SHOP,
    "x-error-message": error.message,
    "x-error-name": error.name,
    "x-error-stack": error.stack,
    "x-retry-count": 2,
  };
  channel.sendToQueue(DEAD, message.content, { ...message.properties, headers });
}

main();
