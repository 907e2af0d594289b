// The example comes here.

(async () => {
  const booked = [], mailed = [], said = [];
  const shop = {
    bookOnce: async (order) => !booked.includes(order.id) && booked.push(order.id) > 0,
    confirm: async (order) => mailed.push(order.id),
  };
  for (const [id, headers] of [["1"], ["2", {dlq_replay_lap: "1"}], ["2", {dlq_replay_lap: "1"}],
                               ["3", {dlq_replay_lap: "3"}]]) {
    said.push((await handle(headers, {id, amount: 5}, shop)) ? "True" : "False");
  }
  console.log([said.join(" "), "booked " + booked.join(" "), "mailed " + mailed.join(" ")].join("\n"));
})();
