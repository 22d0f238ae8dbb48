/**
 * A worker that kills itself with -9 at a step of an export: run as a child by the test
 * beside it.
 */
import { randomUUID } from 'node:crypto';
import { Pool } from 'pg';
import { World } from '../export-world.ts';
import { TestRowPool } from './fault-case.ts';
import { LARGE, NOW } from './killed-case.ts';

const [url = '', folder = '', step = '', nth = '1'] = process.argv.slice(2);
const world = new World(url, new Pool({ connectionString: url }), folder);
world.source.entries = LARGE;
let passed = 0;
await world.export(
  NOW,
  { runId: randomUUID() },
  {
    rowPool: new TestRowPool(),
    segmentBytesMax: 2 ** 28,
    failpoint: (reached) => {
      if (reached !== step) return;
      passed += 1;
      if (passed === Number(nth)) process.kill(process.pid, 'SIGKILL');
    },
  },
);
