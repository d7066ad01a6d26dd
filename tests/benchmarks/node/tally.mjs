// Which jobs ran in this process, and when: as agent/tally.py, by write(), since one
// thread holds no lock that a write could let go of.

import fs from "node:fs";
import path from "node:path";

const pair = Buffer.alloc(16);
let file = null;

export function note(number) {
  pair.writeBigUInt64LE(process.hrtime.bigint(), 8);
  pair.writeBigUInt64LE(BigInt(number), 0);
  file ??= fs.openSync(path.join(process.env.BENCHMARK_TALLY, `${process.pid}`), "a");
  fs.writeSync(file, pair);
}
