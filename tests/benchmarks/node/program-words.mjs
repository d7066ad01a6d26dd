// The three words that the program of a peer obeys: as agent/program.py.

import readline from "node:readline";

const NOTE = "x".repeat(72);

// The machine's monotonic clock in nanoseconds: exact in a double for 104 days.
export const clock = () => Number(process.hrtime.bigint());

export async function run({ setup, producer, work }) {
  const [word, options] = process.argv.slice(2);
  if (word === "setup") {
    await setup();
    process.exit(0);
  } else if (word === "produce") {
    await obey(await producer());
    process.exit(0);
  } else {
    await work(JSON.parse(options));
  }
}

function payloads(first, count) {
  return Array.from({ length: count }, (_, n) => ({ order_id: first + n, note: NOTE }));
}

async function obey(producer) {
  const answers = process.stdout;
  // Whatever a library prints belongs into the log.
  console.log = console.info = console.debug = console.error;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const items = payloads(order.first, order.count);
    const started = clock();
    const answer = await producer[order.do](items, order.options);
    const seconds = (clock() - started) / 1e9;
    answers.write(`${JSON.stringify({ seconds, clock: answer ?? null })}\n`);
  }
}
