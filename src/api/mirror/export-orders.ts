/** On-demand exports as the read API offers them: runs, queued ahead of the nightly ones. An id is the run's. */
import { validate as isUuid } from 'uuid';
import { isHexId } from '../../core/ids.ts';
import { formatInstant, type Micros, parseInstant } from '../../core/time.ts';
import { partyName } from '../../ledger/objects/object-keys.ts';
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { RunDocument } from '../../runs/run-document.ts';
import type { Run } from '../../runs/store/run.ts';
import { StatusError } from '../http/status-error.ts';
import type { Download, Downloads } from './downloads.ts';
import { followRun } from './follow-run.ts';

/** Each is a run that is never forgotten, and goes ahead of the nightly ones. */
const ORDERS_OPEN_MAX = 200;

export interface ExportOrder {
  readonly partyId: string;
  readonly assetId?: string | undefined;
  readonly from?: Micros | undefined;
  readonly to?: Micros | undefined;
  /** What is covered in the range is not believed, and asked for anew. */
  readonly again?: boolean | undefined;
}

export interface ExportStatus extends Pick<RunDocument, 'state' | 'verdict' | 'evidence'> {
  readonly id: string;
}

/** One line of the history of orders. Times are RFC 3339; null where the order named none. */
export interface OrderRecord extends ExportStatus, Pick<RunDocument, 'queuedAt' | 'finishedAt'> {
  readonly partyId: string;
  readonly assetId: string | null;
  readonly from: string | null;
  readonly to: string | null;
}

export interface OrdersQuestion {
  readonly partyId?: string | undefined;
  /** Orders older than this one. */
  readonly before?: string | undefined;
  readonly rowsMax: number;
}

export class ExportOrders {
  readonly #deps: JobDeps;
  readonly #downloads: Downloads;

  constructor(deps: JobDeps, downloads: Downloads) {
    this.#deps = deps;
    this.#downloads = downloads;
  }

  /** An order that is open already is not queued again: its id is returned. */
  async submit({ partyId, assetId, from, to, again }: ExportOrder): Promise<{ id: string }> {
    const { runs, stages } = this.#deps;
    if (!isHexId(partyId) && (await stages.listedParties(partyId))[0] !== partyId) {
      throw StatusError.ofGateway('invalidArgument', 'partyId: no such party is listed');
    }
    if ((await runs.openOrders()) >= ORDERS_OPEN_MAX) {
      throw StatusError.ofGateway(
        'resourceExhausted',
        `${ORDERS_OPEN_MAX} orders are open already; wait for some of them, or cancel them`,
      );
    }
    const params = {
      ...(assetId === undefined ? {} : { assetId }),
      ...(from === undefined ? {} : { from: formatInstant(from) }),
      ...(to === undefined ? {} : { to: formatInstant(to) }),
      ...(again === true ? { again } : {}),
      isOrdered: true,
    };
    const { run, found } = await runs.order({ kind: 'export', subject: partyId, params });
    if (found === 'none') await enqueueRun(run, this.#deps);
    return { id: run.runId };
  }

  async get(id: string): Promise<ExportStatus | undefined> {
    const run = await this.#find(id);
    return run === undefined ? undefined : toStatus(run);
  }

  /** Newest first. */
  async list({ partyId, before, rowsMax }: OrdersQuestion): Promise<readonly OrderRecord[]> {
    const runs = await this.#deps.runs.list({
      kind: 'export',
      limit: rowsMax,
      ...(partyId === undefined ? {} : { subject: partyId }),
      ...(before === undefined ? {} : { before }),
    });
    return runs.map((run) => toRecord(run));
  }

  /** Has no effect on an order that has ended. @returns false where there is no such order */
  async cancel(id: string): Promise<boolean> {
    const run = await this.#find(id);
    if (run !== undefined) await this.#deps.runs.requestCancel(run.runId);
    return run !== undefined;
  }

  /** The state now, then each change, ending with the order or the signal. */
  progress(id: string, signal: AbortSignal): AsyncIterable<object> {
    return followRun(async () => {
      const status = await this.get(id);
      return status === undefined
        ? undefined
        : { ...status, progress: await this.#deps.progress.read(status.id) };
    }, signal);
  }

  /**
   * undefined while the order has not ended with something to download.
   * @throws StatusError 429 where too many files are being made already
   */
  async openDownload(id: string): Promise<Download | undefined> {
    const run = await this.#find(id);
    if (run?.verdict === undefined || run.verdict === 'failed') return undefined;
    const { assetId, from, to } = askedBy(run);
    const range = { partyId: run.subject, assetId, from: instantOf(from), to: instantOf(to) };
    const fileName = `ledger_entries_${partyName(run.subject)}_${assetId ?? 'all'}.csv`;
    return this.#downloads.open(run.runId, fileName, (signal) => this.#deps.stages.readLedger(range, signal));
  }

  async #find(id: string): Promise<Run | undefined> {
    const run = isUuid(id) ? await this.#deps.runs.get(id) : undefined;
    return run?.kind === 'export' ? run : undefined;
  }
}

/** What was asked for, as the run keeps it. */
function askedBy({ params }: Run): Readonly<Partial<Record<'assetId' | 'from' | 'to', string>>> {
  const texts = (['assetId', 'from', 'to'] as const).map((name) => [name, params[name]] as const);
  return Object.fromEntries(texts.filter(([, value]) => typeof value === 'string'));
}

function instantOf(text: string | undefined): Micros | undefined {
  return text === undefined ? undefined : parseInstant(text);
}

function toStatus({ runId, state, verdict, evidence }: Run): ExportStatus {
  return { id: runId, state, verdict: verdict ?? null, evidence };
}

function toRecord(run: Run): OrderRecord {
  const { assetId = null, from = null, to = null } = askedBy(run);
  const { queuedAt, finishedAt = null } = run;
  return { ...toStatus(run), partyId: run.subject, assetId, from, to, queuedAt, finishedAt };
}
