/**
 * A source in memory: a party's rows, served unordered as a release of the service would.
 */
import type {
  AnswerHead,
  ExportAnswer,
  WindowRequest,
  LedgerSource,
} from '../../src/exports/ports.ts';
import type { SourceClock } from '../../src/exports/planning/source-clock.ts';
import { floorSecond, parseInstant, type Micros } from '../../src/time/time.ts';
import { HEADER_12, HEADER_13, writeRow12, writeRow13 } from '../ledger/csv.ts';

export const PARTY = 'aa'.repeat(32);
export const OTHER = 'bb'.repeat(32);
export const ASSET = 'c0'.repeat(32);
export const ASSET_2 = 'c1'.repeat(32);

export interface Entry {
  /** Postgres's text: `2023-05-01 10:00:00.123456+00`. */
  readonly time: string;
  readonly quantity?: bigint;
  readonly from?: string;
  readonly to?: string;
  readonly asset?: string;
}

export function at(text: string): Micros {
  const instant = parseInstant(text);
  if (instant === undefined) throw new Error(`no instant: ${text}`);
  return instant;
}

/** The source's clock at an instant; closed is what lies two minutes before it. */
export function clockAt(
  seen: Micros,
  marginMicros = 120_000_000n,
): SourceClock {
  return { seen, closedTo: floorSecond(seen - marginMicros), from: 'source' };
}

/**
 * `count` entries from `first` on, some seconds apart; every fifth one repeats the one
 * before.
 */
export function entries(
  first: string,
  count: number,
  stepSeconds = 60,
): Entry[] {
  const start = at(first);
  return Array.from({ length: count }, (_, index) => {
    const distinct = index - (index % 5 === 4 ? 1 : 0);
    const seconds = Number(start / 1_000_000n) + distinct * stepSeconds;
    const text = new Date(seconds * 1000)
      .toISOString()
      .slice(0, 19)
      .replace('T', ' ');
    return {
      time: `${text}.${String(100_000 + distinct)}+00`,
      quantity: 10n ** 30n + BigInt(distinct),
    };
  });
}

const FILLED = {
  quantity: 1n,
  type: 'WIN',
  from: PARTY,
  to: OTHER,
  asset: ASSET,
  market: '',
};

export function row12(entry: Entry): string {
  return writeRow12({ ...FILLED, ...entry });
}

/** As the sender's export has it. */
export function row13(entry: Entry): string {
  const { quantity } = { ...FILLED, ...entry };
  return writeRow13(
    { ...FILLED, balances: ['5', '7'], ...entry },
    `-${quantity}`,
  );
}

/** What happens to the bytes of one answer. */
export type Spoil = (
  csv: Buffer,
  question: WindowRequest,
) => Iterable<Buffer> | AsyncIterable<Buffer>;

export class LedgerDouble implements LedgerSource {
  hasTimes = true;
  readonly baseUrl = 'http://ledger.double';
  readonly asked: WindowRequest[] = [];
  entries: Entry[] = [];
  columns: 12 | 13 = 12;
  /** Answers in turn are spoiled by these; `undefined` leaves one alone. */
  readonly spoils: (Spoil | undefined)[] = [];
  isFramed = true;
  /** What the headers of answers in turn say of their node; then nothing. */
  readonly heads: AnswerHead[] = [];
  atOnce = 0;
  atOnceMax = 0;

  async ask(
    question: WindowRequest,
    signal: AbortSignal,
  ): Promise<ExportAnswer> {
    signal.throwIfAborted();
    this.asked.push(question);
    this.atOnce += 1;
    this.atOnceMax = Math.max(this.atOnceMax, this.atOnce);
    const csv = this.csv(question);
    const spoil = this.spoils.shift();
    const head = this.heads.shift() ?? {};
    const leave = (): void => {
      this.atOnce -= 1;
    };
    return {
      form: () => 'csv',
      isFramed: this.isFramed,
      head,
      chunks: chunks(
        spoil === undefined ? pieces(csv, 700) : spoil(csv, question),
        signal,
      ),
      async [Symbol.asyncDispose]() {
        leave();
      },
    };
  }

  /** The rows of this party, as the release writes them, shuffled anew by each call. */
  rows(question: WindowRequest): string[] {
    const { partyId, assetId, from = 0n, to } = question;
    const write = this.columns === 12 ? row12 : row13;
    const served = this.entries.filter((entry) => {
      const time = at(entry.time);
      const isParty =
        (entry.from ?? PARTY) === partyId ||
        (this.columns === 13 && (entry.to ?? OTHER) === partyId);
      const isAsset =
        assetId === undefined || (entry.asset ?? ASSET) === assetId;
      return (
        isParty && isAsset && time >= from && (to === undefined || time < to)
      );
    });
    const turn =
      served.length === 0 ? 0 : (this.asked.length * 7) % served.length;
    return [...served.slice(turn), ...served.slice(0, turn)].map(write);
  }

  csv(question: WindowRequest): Buffer {
    const header = this.columns === 12 ? HEADER_12 : HEADER_13;
    return Buffer.from(
      [header, ...this.rows(question)].map((line) => `${line}\n`).join(''),
    );
  }
}

export function pieces(bytes: Buffer, size: number): Buffer[] {
  const cut: Buffer[] = [];
  for (let from = 0; from < bytes.length; from += size)
    cut.push(bytes.subarray(from, from + size));
  return cut;
}

async function* chunks(
  bytes: Iterable<Buffer> | AsyncIterable<Buffer>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for await (const chunk of bytes) {
    signal.throwIfAborted();
    yield chunk;
  }
}
