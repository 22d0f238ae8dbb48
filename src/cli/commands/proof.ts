/**
 * `prove`, `check-proof` and `compare`: let others check what a mirror claims about
 * itself, without having to trust it.
 */
import { createReadStream, existsSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { openComparedSide, openOwnProofFiles } from '../../app/proof-places.ts';
import { errorCode, UsageError } from '../../errors/errors.ts';
import { compressionOf, plainStream } from '../../ledger/object-keys.ts';
import { compareMirrors, type MirrorDifference } from '../../proof/compare.ts';
import {
  CsvSums,
  differingMonths,
  type MonthDifference,
  type NewerRows,
} from '../../proof/csv-sums.ts';
import {
  checkProof,
  encodeProof,
  type ProvenLedger,
  proveLedger,
} from '../../proof/ledger-proof.ts';
import {
  decodeVerifierKey,
  type VerifierKey,
} from '../../proof/signed-note.ts';
import { formatInstant, parseInstant } from '../../time/time.ts';
import { EXIT, type Handler } from '../context.ts';
import { requireMirror } from '../mirror.ts';
import { outputProblems, writeOutput } from '../output/destination.ts';
import {
  formatCount,
  formatPlural,
  formatTimeUtc,
} from '../../format/format.js';
import { printable } from '../output/format.ts';

/** Maximum size of an input file: far larger than a statement with many gaps. */
const GIVEN_BYTES_MAX = 64 * 2 ** 20;

interface ProveOptions {
  readonly party: string;
  readonly asset?: string;
  readonly at?: string;
  readonly output?: string;
}

export const prove: Handler<ProveOptions> = async (options, context) => {
  const problems = outputProblems('--output', options.output);
  if (problems.length > 0) throw new UsageError(problems);
  requireMirror(context.config, context.config.objectStoreUrl, 'objects');
  await using stack = new AsyncDisposableStack();
  const files = await openOwnProofFiles(context, stack);
  const proof = await proveLedger(files, options);
  const text = encodeProof(proof);
  if (options.output === undefined) return { document: proof, text };

  await writeOutput(resolve(options.output), context.signal, async (output) => {
    output.end(text);
  });
  const written = { file: options.output };
  return { document: written, text: `Proof written to ${options.output}.\n` };
};

interface CheckOptions {
  readonly file: string;
  readonly csv: readonly string[];
  readonly key: string;
}

const checkProofFile: Handler<CheckOptions> = async ({ file, csv, key }) => {
  const proven = checkProof(await readGiven('FILE', file), await readKey(key));
  const { statement, record } = proven;
  const checked = csv.length > 0 ? await checkCsv(csv, proven) : undefined;
  const { differences, newer } = checked ?? {};
  const document = {
    mirror: statement.mirror,
    night: statement.night,
    heldAt: statement.heldAt,
    verdict: statement.verdict,
    party: record.party,
    asset: record.asset,
    rows: record.rows,
    months: record.months,
    covered: record.covered,
    coveredTo: statement.ledgers.coveredTo,
    ...(differences === undefined
      ? {}
      : { csv: { files: csv, differences, ...(newer && { newer }) } }),
  };
  const isRight = (differences ?? []).every(isOnlyAbsent);
  return {
    exitCode: isRight ? EXIT.done : EXIT.verdict,
    document,
    text: describeProven(proven) + describeCsv(checked, proven),
  };
};
export { checkProofFile as 'check-proof' };

interface CompareOptions {
  readonly left: string;
  readonly right: string;
}

export const compare: Handler<CompareOptions> = async (options, context) => {
  await using stack = new AsyncDisposableStack();
  const left = await openComparedSide(options.left, context, stack);
  const right = await openComparedSide(options.right, context, stack);
  const found = await compareMirrors(left, right);
  const { statement } = left;
  const same =
    `Both hold the same: ${formatCount(statement.ledgers.count)} ledgers with ` +
    `${formatCount(statement.ledgers.rows)} entries, ` +
    `${formatCount(statement.lists.parties.rows)} parties, ` +
    `${formatCount(statement.lists.checkpoints.rows)} checkpoints.\n`;
  return {
    exitCode: found.isSame ? EXIT.done : EXIT.verdict,
    document: {
      left: { name: left.name, night: left.statement.night },
      right: { name: right.name, night: right.statement.night },
      ...found,
    },
    text: found.isSame ? same : describeDifference(found),
  };
};

/**
 * Whether the CSV has no rows of this month. That is not a contradiction: the CSV may
 * contain only part of the ledger.
 */
function isOnlyAbsent({ left }: MonthDifference): boolean {
  return left === null;
}

interface CheckedCsv {
  readonly differences: readonly MonthDifference[];
  /**
   * The rows that are too new for the mirror to have had: those at or after the end of
   * its coverage of the ledger.
   */
  readonly newer: NewerRows | undefined;
  /** Whether the rows before the end of that coverage are those that the mirror had. */
  readonly isSameBefore: boolean;
}

async function checkCsv(
  paths: readonly string[],
  { record, statement }: ProvenLedger,
): Promise<CheckedCsv> {
  const [, to] = record.covered.at(-1) ?? [null, null];
  const end = parseInstant(to ?? statement.ledgers.coveredTo ?? '');
  const sums = new CsvSums(end === undefined ? undefined : formatInstant(end));
  for (const path of paths) {
    const found = resolve(path);
    if (!(statSync(found, { throwIfNoEntry: false })?.isFile() ?? false))
      throw new UsageError([`check-proof: the file ${path} does not exist`]);
    const stored = createReadStream(found);
    await sums.add(plainStream(stored, compressionOf(found)), path);
  }
  const differences = differingMonths(sums.months(), record.months);
  const before = differingMonths(sums.monthsBefore(), record.months);
  return {
    differences,
    newer: differences.every(isOnlyAbsent) ? undefined : sums.newer(),
    isSameBefore: before.every(isOnlyAbsent),
  };
}

function describeProven({ statement, record }: ProvenLedger): string {
  const { mirror, night, heldAt, verdict, ledgers } = statement;
  const ledger =
    record.asset === null
      ? record.party
      : `${record.party} in asset ${record.asset}`;
  const covered = record.covered
    .map(
      ([from, to]) =>
        `from ${from ?? 'the beginning'} to ${to ?? ledgers.coveredTo ?? 'the present'}`,
    )
    .join(', ');
  const lines = [
    `The proof holds. ${printable(mirror)} held of ${printable(ledger)}`,
    `  ${formatPlural(record.rows, 'entry', 'entries')} in ` +
      formatPlural(record.months.length, 'month') +
      (record.notLoaded === '0'
        ? ''
        : `, and ${formatCount(record.notLoaded)} that had not been loaded ` +
          'yet'),
    `  covered ${covered === '' ? 'nowhere' : covered}`,
    `  on night ${night}, which ended at ${formatTimeUtc(heldAt)} and was ${verdict}`,
  ];
  return `${lines.join('\n')}\n`;
}

function describeCsv(
  checked: CheckedCsv | undefined,
  proven: ProvenLedger,
): string {
  if (checked === undefined) return '';
  const { differences, newer, isSameBefore } = checked;
  const night = `night ${proven.statement.night}`;
  if (newer !== undefined && isSameBefore)
    return (
      `The CSV is newer than ${night}: ${describeNewer(newer)}. ` +
      'All its earlier entries are what the mirror held.\n' +
      adviseOnNewer(newer, proven)
    );
  const wrong = differences.filter((month) => !isOnlyAbsent(month));
  const absent = differences.filter(isOnlyAbsent);
  if (wrong.length > 0) {
    const lines = wrong.map(describeMonth('the CSV has', 'the mirror held'));
    const later =
      newer === undefined
        ? ''
        : `The CSV was probably exported after ${night}: ${describeNewer(newer)}.\n` +
          adviseOnNewer(newer, proven);
    return `The CSV is not what the mirror held:\n${lines.join('')}${later}`;
  }
  if (absent.length === 0)
    return 'The CSV is what the mirror held, to the row.\n';
  const months = absent.map(({ month }) => month).join(', ');
  return (
    'The CSV is what the mirror held in its months. ' +
    `It has no rows of ${months}.\n`
  );
}

function describeNewer({ rows, from }: NewerRows): string {
  return (
    `it has ${formatPlural(rows, 'entry', 'entries')} after ${from}, the end of what ` +
    'the mirror had covered of this ledger'
  );
}

function adviseOnNewer({ from }: NewerRows, { record }: ProvenLedger): string {
  return (
    `Export the ledger again with --to ${from}, or prove a later night with ` +
    `'ledger-mirror prove --party ${record.party.slice(0, 8)}'.\n`
  );
}

function describeDifference(found: MirrorDifference): string {
  const lists = found.lists.map(
    ({ list, left, right }) =>
      `  ${list}: ${formatCount(left.rows)} rows on the left, ` +
      `${formatCount(right.rows)} on the right\n`,
  );
  const { ledgerCount } = found;
  if (ledgerCount === null) {
    return (
      `They differ.\n${lists.join('')}  ledgers: in which ones, a statement alone ` +
      'does not show; give the address or the store\n'
    );
  }
  const ledgers = found.ledgers.map(({ party, asset, heldBy, months }) => {
    const name = asset === null ? party : `${party} in asset ${asset}`;
    const only = heldBy === 'both' ? '' : `: only on the ${heldBy}`;
    const lines = months.map(describeMonth('left', 'right', '    '));
    const behind =
      heldBy === 'both' && months.length === 0
        ? ': the same entries, covered up to other times'
        : only;
    return `  ${printable(name)}${behind}\n${lines.join('')}`;
  });
  const rest = ledgerCount - found.ledgers.length;
  const more = rest > 0 ? `  and ${formatCount(rest)} more\n` : '';
  return (
    `They differ${ledgerCount === 0 ? '' : ` in ${formatPlural(ledgerCount, 'ledger')}`}.\n` +
    lists.join('') +
    ledgers.join('') +
    more
  );
}

function describeMonth(leftName: string, rightName: string, indent = '  ') {
  return ({ month, left, right }: MonthDifference): string => {
    const counts =
      left === right
        ? `${formatCount(left ?? '0')} entries on both sides, and not the same`
        : `${leftName} ${formatCount(left ?? '0')} entries, ${rightName} ` +
          formatCount(right ?? '0');
    return `${indent}${month}: ${counts}\n`;
  };
}

/** Formats a count with its noun: `1 ledger`, `2 ledgers`. */

/** Reads a public key, given as a string or as the path of a file that contains it. */
async function readKey(given: string): Promise<VerifierKey> {
  const isPath = existsSync(resolve(given));
  return decodeVerifierKey(isPath ? await readGiven('--key', given) : given);
}

async function readGiven(where: string, path: string): Promise<string> {
  const found = resolve(path);
  const { size = 0 } = statSync(found, { throwIfNoEntry: false }) ?? {};
  if (size > GIVEN_BYTES_MAX) {
    throw new UsageError([
      `${where}: ${path} is larger than ${GIVEN_BYTES_MAX / 2 ** 20} MiB; name the file that \`prove\` wrote`,
    ]);
  }
  try {
    const text = await readFile(found, 'utf8');
    // Some Windows editors put a byte order mark at the start of a file.
    return text.replace(/^\uFEFF/, '');
  } catch (error) {
    throw new UsageError([
      `${where}: cannot read ${path} (${errorCode(error)}); name a file that exists`,
    ]);
  }
}
