// A microservice of NestJS on RabbitMQ, with acknowledgements of its own, that nacks; decorators called by hand.
require("reflect-metadata");
const { NestFactory } = require("@nestjs/core");
const { Module, Controller } = require("@nestjs/common");
const { ClientProxyFactory, Ctx, EventPattern, Payload, Transport } = require("@nestjs/microservices");
const { lastValueFrom } = require("rxjs");
const { URL, PREFIX, LETTERS, MENDED, take, wayOf } = require("./lab");

const queueOptions = {
  durable: true,
  arguments: { "x-dead-letter-exchange": "", "x-dead-letter-routing-key": `${PREFIX}shop.dead` },
};
const options = { urls: [URL], queue: `${PREFIX}shop`, queueOptions, noAck: false };

class Orders {
  pay(order, context) {
    const channel = context.getChannelRef();
    const message = context.getMessage();
    let way;
    try {
      way = take(order.letter, message.content.toString(), message.properties.headers);
    } catch {
      return channel.nack(message);
    }
    return way ? channel.nack(message, false, false) : channel.ack(message);
  }
}
const described = Object.getOwnPropertyDescriptor(Orders.prototype, "pay");
EventPattern(MENDED ? ["order.created", "order.renamed"] : "order.created")(Orders.prototype, "pay", described);
Payload()(Orders.prototype, "pay", 0);
Ctx()(Orders.prototype, "pay", 1);
Controller()(Orders);

class Shop {}
Module({ controllers: [Orders] })(Shop);

async function main() {
  const channel = await (await require("amqplib").connect(URL)).createChannel();
  await channel.assertQueue(`${PREFIX}shop.dead`);
  const service = await NestFactory.createMicroservice(Shop, {
    transport: Transport.RMQ, options, logger: ["error"],
  });
  await service.listen();
  const client = ClientProxyFactory.create({ transport: Transport.RMQ, options: { ...options, noAck: true } });
  for (const letter of MENDED ? [] : LETTERS) {
    const pattern = wayOf(letter) === "unknown" ? "order.renamed" : "order.created";
    await lastValueFrom(client.emit(pattern, { letter }), { defaultValue: 0 });
  }
}

main();
