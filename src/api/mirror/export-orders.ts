/** On-demand exports as the read API offers them: runs, queued ahead of the night's work. */
import { setTimeout as sleep } from 'node:timers/promises';
import { validate as isUuid } from 'uuid';
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { ExportJobs, ExportOrder, ExportStatus, OrderRecord } from '../http/ports.ts';
import { isHexId } from '../../core/ids.ts';
import { formatInstant, parseInstant } from '../../core/time.ts';
import { partyName } from '../../ledger/objects/object-keys.ts';
import type { Run } from '../../runs/store/run.ts';
import { StatusError } from '../http/status-error.ts';
import type { Downloads } from './downloads.ts';

const POLL_MS = 250;
/** Each is a run that is never forgotten, and goes ahead of the night's work. */
const ORDERS_OPEN_MAX = 200;

export function openExportOrders(deps: JobDeps, downloads: Downloads): ExportJobs {
  const find = async (id: string): Promise<Run | undefined> => {
    const run = isUuid(id) ? await deps.runs.get(id) : undefined;
    return run?.kind === 'export' ? run : undefined;
  };
  return {
    submit: (order) => submit(order, deps),
    get: async (id) => {
      const run = await find(id);
      return run === undefined ? undefined : toStatus(run);
    },
    list: async ({ partyId, before, rowsMax }) => {
      const runs = await deps.runs.list({
        kind: 'export',
        limit: rowsMax,
        ...(partyId === undefined ? {} : { subject: partyId }),
        ...(before === undefined ? {} : { before }),
      });
      return runs.map(toRecord);
    },
    cancel: async (id) => {
      const run = await find(id);
      if (run !== undefined) await deps.runs.requestCancel(run.runId);
      return run !== undefined;
    },
    progress: async function* (id, signal) {
      for (let last = ''; !signal.aborted;) {
        const run = await find(id);
        if (run === undefined) return;
        const status = toStatus(run);
        const now = { ...status, progress: await deps.progress.read(id) };
        const text = JSON.stringify(now);
        if (text !== last) yield now;
        if (status.state === 'done' || status.state === 'cancelled') return;
        last = text;
        await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
      }
    },
    openDownload: async (id) => {
      const run = await find(id);
      if (run?.verdict === undefined || run.verdict === 'failed') return undefined;
      const { assetId, from, to } = rangeOf(run);
      const fileName = `ledger_entries_${partyName(run.subject)}_${assetId ?? 'all'}.csv`;
      return downloads.open(run.runId, fileName, (signal) =>
        deps.stages.readLedger({ partyId: run.subject, assetId, from, to }, signal),
      );
    },
  };
}

async function submit(order: ExportOrder, deps: JobDeps): Promise<{ id: string }> {
  const params = {
    ...(order.assetId === undefined ? {} : { assetId: order.assetId }),
    ...(order.from === undefined ? {} : { from: formatInstant(order.from) }),
    ...(order.to === undefined ? {} : { to: formatInstant(order.to) }),
    ...(order.again === true ? { again: true } : {}),
  };
  if (!isHexId(order.partyId) && (await deps.stages.listedParties(order.partyId))[0] !== order.partyId) {
    throw StatusError.ofGateway('invalidArgument', 'partyId: no such party is listed');
  }
  if ((await deps.runs.openOrders()) >= ORDERS_OPEN_MAX) {
    throw StatusError.ofGateway(
      'resourceExhausted',
      `${ORDERS_OPEN_MAX} orders are open already; wait for some of them, or cancel them`,
    );
  }
  const { run, found } = await deps.runs.order({
    kind: 'export',
    subject: order.partyId,
    params: { ...params, isOrdered: true },
  });
  if (found === 'none') await enqueueRun(run, deps);
  return { id: run.runId };
}

function rangeOf(run: Run): Pick<ExportOrder, 'assetId' | 'from' | 'to'> {
  const { assetId, from, to } = paramsOf(run);
  return {
    assetId,
    from: from === undefined ? undefined : parseInstant(from),
    to: to === undefined ? undefined : parseInstant(to),
  };
}

/** What was asked for, as the run keeps it. */
function paramsOf({ params }: Run): Readonly<Partial<Record<'assetId' | 'from' | 'to', string>>> {
  const texts = (['assetId', 'from', 'to'] as const).map((name) => [name, params[name]] as const);
  return Object.fromEntries(texts.filter(([, value]) => typeof value === 'string'));
}

function toStatus(run: Run): ExportStatus {
  return { id: run.runId, state: run.state, verdict: run.verdict ?? null, evidence: run.evidence };
}

function toRecord(run: Run): OrderRecord {
  const { assetId = null, from = null, to = null } = paramsOf(run);
  const { queuedAt, finishedAt = null } = run;
  return { ...toStatus(run), partyId: run.subject, assetId, from, to, queuedAt, finishedAt };
}
