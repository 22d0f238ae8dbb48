/**
 * Runs one sync in a separate process, so that only its own memory is measured. Prints
 * one JSON document.
 */
import { openWarehouse } from '../../src/postgres/database.ts';
import { openLists, syncParties } from '../world/lists-bench.ts';

const [sourceUrl = '', databaseUrl = ''] = process.argv.slice(2);
await using source = openLists(new URL(sourceUrl));
await using warehouse = openWarehouse({
  url: databaseUrl,
  onIdleError: () => undefined,
});
const startMs = performance.now();
const { rows, verdict, pageTimesMs } = await syncParties(source, warehouse);
const seconds = (performance.now() - startMs) / 1000;

function rateOf(part: readonly number[]): number {
  return (part.length - 1) / ((part.at(-1) ?? 0) - (part[0] ?? 0));
}

const tenth = Math.floor(pageTimesMs.length / 10);
const lastToFirst =
  rateOf(pageTimesMs.slice(-tenth - 1, -1)) /
  rateOf(pageTimesMs.slice(0, tenth));
const peakMb = process.resourceUsage().maxRSS / 1024;
process.stdout.write(
  `${JSON.stringify({ verdict, rows, rowsPerSecond: rows / seconds, peakMb, lastToFirst })}\n`,
);
