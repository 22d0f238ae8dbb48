/**
 * Runs benchmarks by name, or all of them: `npm run bench [-- lists load api …]
 * [--quick]`. Arguments that are not names are passed to each benchmark. Each file of
 * `bench/` is a benchmark; its folders contain the parts that they share.
 *
 * `npm run bench -- all --quick` is the check before a release: it runs the short forms
 * of `bench/world/quick-plan.ts`, and prints their verdicts as one table. Every call that
 * runs more than one benchmark prints that table at the end, with a row for each
 * benchmark that crashed. The exit code is 1 if anything falls short.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join, resolve } from 'node:path';
import { PRODUCT_FLAGS } from '../bench/world/product-flags.ts';
import { type Planned, QUICK_PLAN } from '../bench/world/quick-plan.ts';
import {
  type Ended,
  type Figure,
  formatSummary,
  isEverythingMet,
} from '../bench/world/summary.ts';

const FOLDER = resolve(import.meta.dirname, '../bench');
const env = { MALLOC_ARENA_MAX: '2', ...process.env };
/**
 * Maximum duration of one short form. None needs half of it on quiet cores, but one that
 * hangs must not keep the others from being measured.
 */
const QUICK_MS_MAX = 300_000;
/** How long a benchmark may take to stop its servers when it is ended. */
const CLEANING_MS_MAX = 30_000;
const DAY_MS = 86_400_000;
const QUICK = '--quick';

const files = await readdir(FOLDER);
const names = files
  .filter((file) => file.endsWith('.ts'))
  .map((file) => file.slice(0, -'.ts'.length));
const given = process.argv.slice(2);
// `pages` is both a benchmark and a part of `api`.
const isPart = (word: string): boolean =>
  word === 'pages' && given.includes('api') && given[0] !== word;
const isName = (word: string): boolean => names.includes(word) && !isPart(word);
const chosen = names.filter((name) => given.includes(name) && isName(name));
const rest = given.filter((word) => !isName(word) && word !== 'all');
const isAll = chosen.length === 0;
const isQuickAll = isAll && given.includes(QUICK);
const limitMs = isQuickAll ? QUICK_MS_MAX : DAY_MS;

const plan: readonly Planned[] = isQuickAll
  ? QUICK_PLAN.map(({ bench, args }) => ({ bench, args: [...args, ...rest] }))
  : (isAll ? names : chosen).map((bench) => ({ bench, args: rest }));
const ended: Ended[] = [];
const loadBefore = loadavg();
for (const planned of plan) ended.push(await run(planned));
if (plan.length > 1) {
  process.stdout.write(`\n${formatSummary(ended)}`);
  const load = [loadBefore, loadavg()].map(([minute = 0]) => minute.toFixed(1));
  process.stdout.write(
    `The load of the machine was ${load[0]} before and ${load[1]} after.\n`,
  );
}
if (!isEverythingMet(ended)) process.exitCode = 1;

/**
 * Runs one benchmark to its end. Its own rows go to standard error if the caller wants
 * only the common table on standard output.
 */
async function run({ bench, args }: Planned): Promise<Ended> {
  const rows = plan.length > 1 ? process.stderr : process.stdout;
  rows.write(`\n## ${bench}\n\n| what | value | wanted |\n|---|---|---|\n`);
  const startedMs = performance.now();
  const child = spawn(
    process.execPath,
    [...PRODUCT_FLAGS, join(FOLDER, `${bench}.ts`), ...args],
    { stdio: ['inherit', 'pipe', 'inherit', 'ipc'], env },
  );
  child.stdout?.pipe(rows, { end: false });
  const figures: Figure[] = [];
  child.on('message', (figure) => void figures.push(figure as Figure));
  let isOverdue = false;
  const limit = setTimeout(() => {
    isOverdue = true;
    child.kill('SIGTERM');
  }, limitMs);
  const lastLimit = setTimeout(
    () => child.kill('SIGKILL'),
    limitMs + CLEANING_MS_MAX,
  );
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(limit);
  clearTimeout(lastLimit);
  const seconds = (performance.now() - startedMs) / 1000;
  return { bench, figures, code: code ?? undefined, isOverdue, seconds };
}
