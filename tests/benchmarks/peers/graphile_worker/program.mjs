// Graphile Worker: the library's own pool for single calls, add_job() and add_jobs()
// in SQL, as it documents, for transactions.

import { makeWorkerUtils, run as runWorker } from "graphile-worker";
import pg from "pg";

import { clock, run } from "./program-words.mjs";
import { note } from "./tally.mjs";

// Everything else stands in libpq's environment variables.
const connectionString = "postgres:///";

const ADD_JOB = "SELECT graphile_worker.add_job('nothing', $1::json)";
const ADD_JOBS = `
  SELECT graphile_worker.add_jobs(array(
    SELECT json_populate_recordset(null::graphile_worker.job_spec, $1::json)))`;

const specs = (items) =>
  items.map((payload) => ({ identifier: "nothing", payload }));

async function setup() {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  await utils.release();
}

async function producer() {
  const utils = await makeWorkerUtils({ connectionString });
  const client = new pg.Client();
  await client.connect();

  return {
    async enqueue(items) {
      for (const item of items) await utils.addJob("nothing", item);
    },
    async bulk(items) {
      await utils.addJobs(specs(items));
    },
    async commit_one([item]) {
      await client.query("BEGIN");
      await client.query(ADD_JOB, [JSON.stringify(item)]);
      const at = clock();
      await client.query("COMMIT");
      return at;
    },
    async commit_many(items) {
      await client.query("BEGIN");
      await client.query(ADD_JOBS, [JSON.stringify(specs(items))]);
      await client.query("COMMIT");
      return clock();
    },
  };
}

async function work({ worker }) {
  const runner = await runWorker({
    preset: { worker: { connectionString, ...worker } },
    taskList: { nothing: async ({ order_id }) => note(order_id) },
  });
  await runner.promise;
}

await run({ setup, producer, work });
