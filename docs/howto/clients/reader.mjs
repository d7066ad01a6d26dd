// A reader of the topic "photos", as the consumer group "thumbs": node reader.mjs
// It connects as psql does, by PGHOST, PGDATABASE, PGUSER and their like.

import pg from "pg";

const TOPIC = "photos";
const GROUP = "photos/thumbs";
const LOOK_SECONDS_MAX = 10; // A notification is a hint, and may be lost.

const client = new pg.Client();
let wake = () => {};
let isStopping = false;

async function one(statement, values) {
  return (await client.query(statement, values)).rows[0];
}

// What messages cause and the group's position are one transaction. The partition is
// ours until it ends; if we die in it, others read on from where it began.
async function round() {
  await client.query("BEGIN");
  const { rows } = await client.query(
    "SELECT id, payload, receipt FROM pgqueue_read($1, 100)",
    [GROUP],
  );
  for (const { payload } of rows)
    await client.query("INSERT INTO shop_thumbnail (path) VALUES ($1)", [payload.path]);
  const last = rows.at(-1);
  const isOurs =
    !last ||
    (await one("SELECT pgqueue_commit_position($1, $2) AS it", [last.receipt, last.id])).it;
  await client.query(isOurs ? "COMMIT" : "ROLLBACK");
  return rows.length;
}

client.on("notification", ({ payload }) => {
  if (payload === `!topic ${TOPIC}`) wake();
});
process.on("SIGTERM", () => {
  isStopping = true;
  wake();
});

await client.connect();
const { channel } = await one("SELECT pgqueue_channel() AS channel");
await client.query(`LISTEN ${client.escapeIdentifier(channel)}`);

while (!isStopping) {
  // From before the look on, so that what is published during it is heard.
  const woken = new Promise((resolve) => (wake = resolve));
  if (!(await round()) && !isStopping) {
    const timer = setTimeout(wake, LOOK_SECONDS_MAX * 1000);
    await woken;
    clearTimeout(timer);
  }
}
await client.end();
