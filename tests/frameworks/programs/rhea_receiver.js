// A receiver of rhea (AMQP 1.0) that rejects, gives back as failed until the broker's limit, or comes too late.
const rhea = require("rhea");
const { URL, PREFIX, LETTERS, MENDED, take, wayOf } = require("./lab");

const [user, password, host, port] = URL.split(/[:@]/);
const SHOP = `${PREFIX}shop`;
const WAIT = `${PREFIX}shop.wait`;
const connection = rhea.connect({ host, port, username: user, password, reconnect: false });

function order(letter) {
  const json = Buffer.from(`{"letter": "${letter}"}`);
  return {
    body: wayOf(letter) === "rejected" ? rhea.message.data_section(json) : { letter, amount: 7 },
    durable: true,
    message_id: rhea.types.wrap_ulong(LETTERS.indexOf(letter) + 1),
    correlation_id: letter,
    content_type: "application/json",
    application_properties: { tenant: 7, "cloudEvents:id": letter },
    ...(wayOf(letter) === "expired" ? { ttl: 300 } : {}),
  };
}

// One at a time: rhea 3.0.5 may accept what was modified, where both fall into one turn of its loop.
let turn = Promise.resolve();
connection.on("message", (context) => {
  turn = turn.then(() => handle(context)).then(() => new Promise((resolve) => setTimeout(resolve, 20)));
});

function handle({ message, delivery, receiver }) {
  const { body, message_id, correlation_id, content_type, application_properties } = message;
  const shown = body.content ? body.content.toString() : body;
  let way;
  try {
    way = take(correlation_id, shown, { ...application_properties, message_id, content_type });
  } catch {
    way = "failed";
  }
  if (way === "rejected") delivery.reject({ condition: "shop:declined", description: "declined" });
  else if (way) delivery.modified({ delivery_failed: true, undeliverable_here: false });
  else delivery.accept();
  receiver.add_credit(1);
}

function receive() {
  for (const address of [SHOP, WAIT]) {
    connection.open_receiver({ source: address, autoaccept: false, credit_window: 0 }).add_credit(1);
  }
}

if (MENDED) {
  receive();
} else {
  let sent = 0;
  for (const address of [SHOP, WAIT]) {
    const sender = connection.open_sender(address);
    sender.once("sendable", () => {
      const ours = LETTERS.filter((letter) => (wayOf(letter) === "expired") === (address === WAIT));
      for (const letter of ours) sender.send(order(letter));
    });
    sender.on("accepted", () => {
      sent += 1;
      if (sent === LETTERS.length) setTimeout(receive, 400);
    });
  }
}
