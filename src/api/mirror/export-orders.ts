/** On-demand exports as the read API offers them: runs, queued ahead of the nightly ones. An id is the run's. */
import { z } from 'zod';
import { isHexId, PARTY_ID_BYTES_MAX } from '../../core/ids.ts';
import { readInstant } from '../../core/time.ts';
import { partyName } from '../../ledger/objects/object-keys.ts';
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import { RUN, type RunDocument } from '../../runs/run-schema.ts';
import type { Run } from '../../runs/store/run.ts';
import { TEXT_OR_NULL, UUID } from '../http/routes.ts';
import { StatusError } from '../http/status-error.ts';
import type { Download, Downloads } from './downloads.ts';

/** Each is a run that is never forgotten, and goes ahead of the nightly ones. */
const ORDERS_OPEN_MAX = 200;

const INSTANT = z.string().max(40).optional();
const PARTY_ID = z.string().min(1).max(PARTY_ID_BYTES_MAX);

/** Kept as the run's parameters. */
export const EXPORT_ORDER = z.strictObject({
  partyId: PARTY_ID.describe('As the source lists it.'),
  assetId: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/)
    .optional(),
  from: INSTANT.describe('RFC 3339, inclusive, a whole second. Without it, from the beginning.'),
  to: INSTANT.describe('RFC 3339, exclusive, a whole second. Without it, up to the present.'),
  again: z.boolean().optional().describe('Distrust what is covered in that range, and ask for it anew.'),
});
export type ExportOrder = z.infer<typeof EXPORT_ORDER>;

export const ORDERS_QUESTION = z.strictObject({
  partyId: PARTY_ID.optional().describe('Only orders for this party.'),
  before: UUID.optional().describe('Only orders older than this one: the next page.'),
  limit: z.int().min(1).max(500).default(50),
});
export type OrdersQuestion = z.infer<typeof ORDERS_QUESTION>;

export const EXPORT_STATUS = RUN.pick({ id: true, state: true, verdict: true, evidence: true });
export type ExportStatus = z.infer<typeof EXPORT_STATUS>;

/** What was asked for; null where the order named none. */
const ASKED = z.object({ assetId: TEXT_OR_NULL, from: TEXT_OR_NULL, to: TEXT_OR_NULL });

/** One line of the history of orders. Times are RFC 3339. */
export const ORDER_RECORD = EXPORT_STATUS.extend({
  partyId: z.string(),
  ...ASKED.shape,
  ...RUN.pick({ queuedAt: true, finishedAt: true }).shape,
});
export type OrderRecord = z.infer<typeof ORDER_RECORD>;

export class ExportOrders {
  readonly #deps: JobDeps;
  readonly #downloads: Downloads;

  constructor(deps: JobDeps, downloads: Downloads) {
    this.#deps = deps;
    this.#downloads = downloads;
  }

  /** An order that is open already is not queued again: its id is returned. */
  async submit({ partyId, ...asked }: ExportOrder): Promise<{ id: string }> {
    const { runs, stages } = this.#deps;
    if (!isHexId(partyId) && (await stages.listedParties(partyId))[0] !== partyId)
      throw new StatusError('invalidArgument', 'partyId: no such party is listed');
    if ((await runs.openOrders()) >= ORDERS_OPEN_MAX) {
      const state = `${ORDERS_OPEN_MAX} orders are open already`;
      throw new StatusError('resourceExhausted', `${state}; wait for some of them, or cancel them`);
    }
    const params = { ...asked, isOrdered: true };
    const { run, found } = await runs.order({ kind: 'export', subject: partyId, params });
    if (found === 'none') await enqueueRun(run, this.#deps);
    return { id: run.runId };
  }

  /** Newest first. */
  async list({ partyId: subject, ...page }: OrdersQuestion): Promise<readonly OrderRecord[]> {
    const runs = await this.#deps.runs.list({ kind: 'export', subject, ...page });
    return runs.map((run) => {
      const { subject: partyId, queuedAt, finishedAt } = run;
      return { ...toStatus(run), partyId, ...askedBy(run), queuedAt, finishedAt };
    });
  }

  /**
   * undefined while the order has not ended with something to download.
   * @throws StatusError 429 where too many files are being made already
   */
  async openDownload(id: string): Promise<Download | undefined> {
    const run = await this.#deps.runs.get(id);
    if (run?.kind !== 'export' || run.verdict === null || run.verdict === 'failed') return undefined;
    const { assetId, from, to } = askedBy(run);
    const range = {
      partyId: run.subject,
      assetId: assetId ?? undefined,
      from: from === null ? undefined : readInstant(from),
      to: to === null ? undefined : readInstant(to),
    };
    const fileName = `ledger_entries_${partyName(run.subject)}_${assetId ?? 'all'}.csv`;
    return this.#downloads.open(id, fileName, (signal) => this.#deps.stages.readLedger(range, signal));
  }
}

function askedBy({ params }: Run): z.infer<typeof ASKED> {
  const { assetId = null, from = null, to = null } = ASKED.partial().parse(params);
  return { assetId, from, to };
}

export function toStatus({ runId, state, verdict, evidence }: RunDocument): ExportStatus {
  return { id: runId, state, verdict, evidence };
}
