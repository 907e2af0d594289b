// A consumer of KafkaJS that parks what it fails on after retries of its own, with headers as many write them.
const { Kafka, logLevel } = require("kafkajs");
const { URL, PREFIX, LETTERS, MENDED, take } = require("./lab");

const ORDERS = `${PREFIX}orders`;
const DEAD = `${PREFIX}orders.dlq`;
const kafka = new Kafka({ brokers: [URL], logLevel: logLevel.ERROR, retry: { initialRetryTime: 50 } });

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  if (!MENDED) {
    const admin = kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: [ORDERS, DEAD].map((topic) => ({ topic })), waitForLeaders: true });
    const messages = LETTERS.map((letter) => ({
      key: "k", value: JSON.stringify({ letter }), headers: { tenant: "7" },
    }));
    await producer.send({ topic: ORDERS, messages });
  }
  const consumer = kafka.consumer({
    groupId: `${PREFIX}billing`,
    maxWaitTimeInMs: 200,
    sessionTimeout: 6000,
    retry: { initialRetryTime: 50, retries: 5 },
  });
  // It leaves its group, so that the next need not wait for its session to end.
  process.removeAllListeners("SIGTERM").once("SIGTERM", () => consumer.disconnect().then(() => process.exit(0)));
  await consumer.connect();
  await consumer.subscribe({ topic: ORDERS, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const value = message.value.toString();
      const headers = Object.fromEntries(Object.entries(message.headers).map(([k, v]) => [k, v.toString()]));
      // What take throws makes KafkaJS call again.
      if (!take(JSON.parse(value).letter, value, headers)) return;
      const error = new RangeError("the price is stale");
      const told = {
        "dlq.source.topic": ORDERS,
        "dlq.source.partition": String(partition),
        "dlq.source.offset": message.offset,
        "dlq.exception.class": error.name,
        "dlq.exception.message": error.message,
        "dlq.exception.stacktrace": error.stack,
      };
      await producer.send({
        topic: DEAD,
        messages: [{ key: message.key, value: message.value, headers: { ...message.headers, ...told } }],
      });
    },
  });
}

main();
