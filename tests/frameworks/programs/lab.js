// What the programs of Node share: where they are, and what becomes of a letter in their hands (as lab.py).
const URL = process.env.LAB_URL;
const PREFIX = process.env.LAB_PREFIX;
const LETTERS = process.env.LAB_LETTERS.split(" ");
const MENDED = process.argv[2] === "mended";
const onceFailed = new Set();

class Hiccup extends Error {}

// The way in which a letter in a consumer's hands shall die, "" where it was handled. Throws Hiccup.
function take(letter, body, headers) {
  const [way, kind] = letter.split(".");
  let event = MENDED ? "handled" : "failed";
  if (MENDED && kind === "hiccup" && !onceFailed.has(letter)) {
    onceFailed.add(letter);
    event = "hiccup";
  }
  console.log(`{"event": ${JSON.stringify(event)}, ${JSON.stringify({ letter, body, headers }).slice(1)}`);
  if (event === "hiccup") throw new Hiccup(letter);
  return event === "failed" ? way : "";
}

const wayOf = (letter) => letter.split(".")[0];
const fail = (error) => {
  console.error(error);
  process.exit(1);
};
process.on("unhandledRejection", fail);
process.on("SIGTERM", () => process.exit(0));

module.exports = { URL, PREFIX, LETTERS, MENDED, Hiccup, take, wayOf };
