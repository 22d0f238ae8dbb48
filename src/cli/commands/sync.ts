/** `sync`: brings the lists up to date now and waits. */
import { openApp } from '../../app/app.ts';
import type { MirrorFacts } from '../../api/http/ports.ts';
import { type Config, requireSource } from '../../config/environment.ts';
import { UsageError } from '../../core/errors.ts';
import { canonicalPartyId } from '../../core/ids.ts';
import { worst } from '../../core/verdict.ts';
import { EXIT, exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { followRuns } from '../follow/follow.ts';
import { joinOrCreate } from '../follow/start.ts';
import { runResult } from '../run-result.ts';
import { chooseParty } from '../mirror.ts';
import { formatCount } from '../output/format.ts';
import { runSummary } from '../output/summary.ts';
import { runDocument } from '../../runs/run-document.ts';

export interface SyncOptions {
  readonly what: keyof typeof LISTS;
  readonly full: boolean;
  readonly party?: string;
  readonly acceptNewNetwork: boolean;
  readonly acceptShrunk: boolean;
}

const LISTS = {
  parties: ['parties'],
  checkpoints: ['checkpoints'],
  all: ['parties', 'checkpoints'],
} as const;

export async function sync(options: SyncOptions, context: CommandContext): Promise<CommandResult> {
  const lists = LISTS[options.what];
  requireSource(context.config);
  if (options.party !== undefined) return lookUp(options, options.party, context);
  await using app = await openApp(context);
  const { full, acceptNewNetwork, acceptShrunk } = options;
  const params = { full, acceptNewNetwork, acceptShrunk };
  const runs = await Promise.all(
    lists.map((list) => joinOrCreate(app, { kind: 'sync', subject: list, params })),
  );
  if (!context.isJson)
    context.stderr.write(planText(lists, await app.status.facts(), options.full, context.config));
  const ended = await followRuns(
    app,
    runs.map(({ run }) => run),
    context,
  );
  const [only] = ended;
  if (ended.length === 1 && only !== undefined) return runResult(only);
  const text = ended.map((run) => runSummary(runDocument(run))).join('\n');
  const verdict = worst(ended.map((run) => run.verdict ?? 'failed'));
  const evidence = Object.fromEntries(
    ended.map((run) => [run.subject, { verdict: run.verdict, ...run.evidence }]),
  );
  const codes = ended.map((run) => exitCodeOf(run.verdict, run.evidence));
  const exitCode = [EXIT.verdict, EXIT.tryAgain].find((code) => codes.includes(code)) ?? EXIT.done;
  return { exitCode, document: { verdict, evidence, runs: ended.map(runDocument) }, text };
}

/** What is about to be asked, before it is. */
function planText(
  lists: readonly ('parties' | 'checkpoints')[],
  facts: MirrorFacts,
  isFull: boolean,
  { sourcePageSize, sourceRate }: Config,
): string {
  const lines = lists.map((list) => {
    const stream = facts.streams.find((one) => one.name === list);
    const known = BigInt(stream?.rows ?? '0');
    const pages = Math.ceil(Number(known) / sourcePageSize);
    if (isFull)
      return `${list}: every page again, about ${formatCount(pages)}, compared with ${formatCount(known)} known rows`;
    if (stream?.verdict === null || known === 0n)
      return `${list}: the first sync reads every page, oldest first`;
    return `${list}: only what is new behind ${formatCount(known)} known rows, then the newest page`;
  });
  return [
    ...lines,
    `pages of ${formatCount(sourcePageSize)}, at most ${formatCount(sourceRate)} requests a second`,
  ]
    .map((line) => `  ${line}\n`)
    .join('');
}

/** One party by filter: there or not, without a sync. */
async function lookUp(options: SyncOptions, given: string, context: CommandContext): Promise<CommandResult> {
  if (options.what === 'checkpoints')
    throw new UsageError(['sync: --party goes with parties, not with checkpoints']);
  const text = canonicalPartyId(given);
  if (text === undefined) {
    throw new UsageError([
      `--party: ${JSON.stringify(given.slice(0, 80))} is no party id; give it as the source lists it`,
    ]);
  }
  await using app = await openApp(context);
  // Of an id that is not listed yet the source knows more.
  const listed = await app.jobs.stages.listedParties(text);
  const id = listed.length === 0 ? text : chooseParty(text, listed);
  const outcome = await app.jobs.stages.lookUpParty(id, context.signal);
  const isListed = outcome.evidence['listed'] === true;
  return {
    exitCode: exitCodeOf(outcome.verdict, outcome.evidence),
    document: { subject: id, ...outcome },
    text: `${id}: ${isListed ? 'listed by the source, and now in the mirror' : 'not listed by the source'}\n`,
  };
}
