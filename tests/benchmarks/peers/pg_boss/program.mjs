// pg-boss: its own pool for single calls, its `db` option for transactions.

import pg from "pg";
import { PgBoss } from "pg-boss";

import { clock, run } from "./program-words.mjs";
import { note } from "./tally.mjs";

const QUEUE = "nothing";

// Everything else stands in libpq's environment variables.
async function start(options) {
  const boss = new PgBoss({ connectionString: "postgres:///", ...options });
  boss.on("error", console.error);
  boss.on("warning", console.error);
  await boss.start();
  return boss;
}

async function setup() {
  const boss = await start({});
  await boss.createQueue(QUEUE, { notify: true });
  await boss.stop();
}

async function producer() {
  // As a web process would: it sends, and leaves maintenance to the workers.
  const boss = await start({ supervise: false, schedule: false });
  const client = new pg.Client();
  await client.connect();
  const db = { executeSql: (text, values) => client.query(text, values) };
  const jobs = (items) => items.map((data) => ({ data }));

  return {
    async enqueue(items) {
      for (const item of items) await boss.send(QUEUE, item);
    },
    async bulk(items) {
      await boss.insert(QUEUE, jobs(items));
    },
    async commit_one([item]) {
      await client.query("BEGIN");
      await boss.send(QUEUE, item, { db });
      const at = clock();
      await client.query("COMMIT");
      return at;
    },
    async commit_many(items) {
      await client.query("BEGIN");
      await boss.insert(QUEUE, jobs(items), { db });
      await client.query("COMMIT");
      return clock();
    },
  };
}

async function work(options) {
  const boss = await start({ useListenNotify: true });
  process.once("SIGTERM", () => boss.stop().then(() => process.exit(0)));
  await boss.work(QUEUE, options, async (batch) => {
    for (const { data } of batch) note(data.order_id);
  });
}

await run({ setup, producer, work });
