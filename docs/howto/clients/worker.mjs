// A worker of the pull queue "thumbs": node worker.mjs
// It connects as psql does, by PGHOST, PGDATABASE, PGUSER and their like.

import pg from "pg";

const QUEUE = "thumbs";
const LOOK_SECONDS_MAX = 10; // A notification is a hint, and may be lost.

const client = new pg.Client();
let wake = () => {};
let isStopping = false;

async function one(statement, values) {
  return (await client.query(statement, values)).rows[0];
}

// What a message causes and its ack are one transaction: both happen, or neither.
async function handle({ receipt, payload }) {
  await client.query("BEGIN");
  try {
    await client.query("INSERT INTO shop_thumbnail (path) VALUES ($1)", [payload.path]);
    const { answer } = await one("SELECT pgqueue_ack($1) AS answer", [receipt]);
    // Stale: our time was over, and somebody else has received it.
    await client.query(answer.stale.length ? "ROLLBACK" : "COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    await client.query("SELECT pgqueue_nack($1, 5, $2)", [receipt, String(error)]);
  }
}

async function pause(woken) {
  const { seconds } = await one("SELECT pgqueue_due_in($1) AS seconds", [QUEUE]);
  const longest = Math.min(seconds ?? LOOK_SECONDS_MAX, LOOK_SECONDS_MAX);
  const timer = setTimeout(wake, longest * 1000);
  await woken;
  clearTimeout(timer);
}

client.on("notification", ({ payload }) => {
  // The second is told of what was redriven.
  if ([`!pull:${QUEUE}`, QUEUE].includes(payload)) wake();
});
process.on("SIGTERM", () => {
  isStopping = true;
  wake();
});

await client.connect();
const { channel } = await one("SELECT pgqueue_channel() AS channel");
await client.query(`LISTEN ${client.escapeIdentifier(channel)}`);

while (!isStopping) {
  // From before the look on, so that what is sent during it is heard.
  const woken = new Promise((resolve) => (wake = resolve));
  const { rows } = await client.query("SELECT * FROM pgqueue_receive($1, 10, 60)", [QUEUE]);
  for (const message of rows) await handle(message);
  if (!rows.length && !isStopping) await pause(woken);
}
await client.end();
