/** `sync`: brings the lists up to date now and waits for the result. */
import { openApp } from '../../app/app.ts';
import { requireSource } from '../../config/environment.ts';
import { UsageError } from '../../errors/errors.ts';
import { canonicalPartyId } from '../../ledger/ids.ts';
import { worst } from '../../errors/verdict.ts';
import { EXIT, exitCodeOf, runResult, type Handler } from '../context.ts';
import { followRun, joinOrCreate } from '../follow.ts';
import { chooseParty } from '../mirror.ts';

interface SyncOptions {
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

export const sync: Handler<SyncOptions> = async (options, context) => {
  requireSource(context.config);
  const { what, full, party, acceptNewNetwork, acceptShrunk } = options;
  if (party !== undefined) return lookUp({ what, party }, context);
  await using app = await openApp(context);
  const params = { full, acceptNewNetwork, acceptShrunk };
  const wanted = LISTS[what].map(
    (subject) => ({ kind: 'sync', subject, params }) as const,
  );
  const joined = await Promise.all(wanted.map((one) => joinOrCreate(app, one)));
  // Wait for both runs, so that each is followed to its end even if following the other
  // one fails.
  const followed = await Promise.allSettled(
    joined.map(({ run }) => followRun(app, run, context)),
  );
  const ended = followed.map((one) => {
    if (one.status === 'rejected') throw one.reason;
    return one.value;
  });
  const [only, ...others] = ended;
  if (only !== undefined && others.length === 0) return runResult(only);
  const results = ended.map(runResult);
  const evidence = ended.map((run) => [
    run.subject,
    { verdict: run.verdict, ...run.evidence },
  ]);
  return {
    exitCode: [EXIT.verdict, EXIT.tryAgain].find((code) =>
      results.some(({ exitCode }) => exitCode === code),
    ),
    document: {
      verdict: worst(ended.map(({ verdict }) => verdict ?? 'failed')),
      evidence: Object.fromEntries(evidence),
      runs: results.map(({ document }) => document),
    },
    text: results.map(({ text }) => text).join('\n'),
  };
};

/**
 * Looks up one party with a filter, without a sync, and reports whether the source lists
 * it.
 */
const lookUp: Handler<{ what: string; party: string }> = async (
  { what, party: given },
  context,
) => {
  if (what === 'checkpoints')
    throw new UsageError([
      'sync: --party goes with parties, not with checkpoints',
    ]);
  const text = canonicalPartyId(given);
  const shown = JSON.stringify(given.slice(0, 80));
  if (text === undefined)
    throw new UsageError([
      `--party: ${shown} is not a party id; give it as the source lists it`,
    ]);
  await using app = await openApp(context);
  // The source may know an id that is not in our list yet.
  const listed = await app.jobs.stages.listedParties(text);
  const id = listed.length === 0 ? text : chooseParty(text, listed);
  const outcome = await app.jobs.stages.lookUpParty(id, context.signal);
  const isListed = outcome.evidence['listed'] === true;
  return {
    exitCode: exitCodeOf(outcome.verdict, outcome.evidence),
    document: { subject: id, ...outcome },
    text:
      `${id}: ` +
      `${isListed ? 'listed by the source, and now in the mirror' : 'not listed by the source'}\n`,
  };
};
