/** The stages composed with their stores, as jobs and commands call them. */
import type { ExportRequest, StageCall, Stages } from '../runs/job.ts';
import { type LedgerIndex, ObjectLedgerReader } from '../api/service/ledger-reader.ts';
import { openRows } from '../postgres/rows.ts';
import { LoadedRows } from '../api/service/store/loaded-rows.ts';
import { type Config, sourceMissing } from '../config/environment.ts';
import { storable } from '../core/json-value.ts';
import type { Log } from '../core/log.ts';
import { nowMicros } from '../core/time.ts';
import { worst, type VerdictWithEvidence } from '../core/verdict.ts';
import { exportParty } from '../export/export-party.ts';
import type { RowPool } from '../export/read/row-pool.ts';
import { mergeAll } from '../export/merge/merge-all.ts';
import { tidyStore } from '../export/publish/janitor.ts';
import { recordCoverage } from '../export/publish/record-coverage.ts';
import { type SourceClock, sourceClock } from '../export/plan/source-clock.ts';
import { scratchDirOf } from './data-dir.ts';
import { lakeDeps } from './lake-deps.ts';
import { buildLake, type LakeDeps } from '../lake/build/build.ts';
import { RowSpool } from '../lake/build/row-spool.ts';
import { verifyLake } from '../lake/verify/verify-lake.ts';
import type { LakeCheck } from '../load/ports.ts';
import { loadAll } from '../load/load-all.ts';
import { type RebuildDeps, rebuildIfEmpty, watchStore } from '../load/rebuild.ts';
import { verify } from '../load/verify.ts';
import { isWrittenOnce, type ObjectStore } from '../objects/object-store.ts';
import { describeStore } from './doctor/describe-store.ts';
import type { Source } from '../source/source-client.ts';
import type { ResumeState } from '../state/resume-state.ts';
import { lookUpParty } from '../list-sync/look-up.ts';
import { findListedParties } from '../list-sync/store/listed-parties.ts';
import type { SyncDeps } from '../list-sync/context.ts';
import { syncList } from '../list-sync/sync.ts';
import type { Warehouse } from '../postgres/database.ts';
import { CoverageStore } from '../export/store/coverage-store.ts';
import { ExportArchiveStore } from '../export/store/export-archive.ts';
import { BatchStore } from '../export/store/batch-store.ts';
import { ExportStore } from '../export/store/export-store.ts';
import { MergeStore } from '../export/store/merge-store.ts';
import { compareWithReport, restoreReports } from '../runs/report/compare-report.ts';
import { publishReport } from '../runs/report/nightly-report.ts';
import { decodeReport } from '../runs/report/report-form.ts';
import { ReportStore } from '../runs/store/report-store.ts';
import { LoadStore } from '../load/store/load-store.ts';
import { RebuildStore } from '../load/store/rebuild-store.ts';
import { VerifyStore } from '../load/store/verify-store.ts';
import { ListStore } from '../list-sync/store/list-store.ts';
import { exportLine, lakeLine, loadLine, syncLine, verifyLine } from '../runs/progress/progress-lines.ts';

/** Asked for its time alone; as small as the source serves pages safely. */
const CLOCK_QUESTION = { list: 'parties', newestFirst: true, size: 2 } as const;

export interface StageParts {
  readonly config: Config;
  readonly log: Log;
  readonly warehouse: Warehouse;
  readonly store: ObjectStore;
  readonly state: ResumeState;
  /** Absent where no SOURCE_URL is set: what asks the source then refuses. */
  readonly source: Source | undefined;
  readonly rowPool: RowPool;
  /** Names this process in its leases. */
  readonly holder: number;
}

type FromSource = 'sync' | 'lookUpParty' | 'clock' | 'export' | 'leaseLedgers' | 'sourceLatency';

export function composeStages(parts: StageParts): Stages {
  return { ...stagesOfSource(parts), ...stagesOfStores(parts) };
}

function exportSettings(config: StageParts['config']) {
  return {
    compression: config.exportCompression,
    segmentBytesMax: config.exportSegmentMax,
    retentionMicros: BigInt(config.sourceRetention) * 1000n,
    exportLimit: config.sourceExportConcurrency,
    assets: config.sourceAssets,
  };
}

/** @throws UsageError from whatever asks the source where there is none */
function stagesOfSource({
  config,
  log,
  warehouse,
  store,
  state,
  source,
  rowPool,
  holder,
}: StageParts): Pick<Stages, FromSource> {
  const asked = (): Source => {
    if (source === undefined) throw sourceMissing('this asks the source');
    return source;
  };
  const syncDeps = (): Omit<SyncDeps, 'onProgress'> => ({
    source: asked().lists,
    store: new ListStore(warehouse.db, holder),
    resumePoints: state,
    log,
  });
  const exportFrom = async (
    repository: ExportStore,
    request: ExportRequest,
    { signal, onProgress }: StageCall,
  ): Promise<VerdictWithEvidence> => {
    const { verdict, evidence, rows, bytes, objectKeys } = await exportParty(
      {
        ...request,
        closedTo: request.clock.closedTo,
        seenTime: request.clock.seen,
        isClockGuessed: request.clock.from === 'guessed',
      },
      {
        source: asked().ledger,
        repository,
        objects: store,
        ...exportSettings(config),
        rowPool,
        onProgress: (progress) => onProgress([exportLine(progress)]),
      },
      signal,
    );
    return { verdict, evidence: storable({ ...evidence, rows, bytes, segments: objectKeys.length }) };
  };
  return {
    sync: ({ full, ...request }, { signal, onProgress }) =>
      syncList(
        { ...request, isAudit: full, pageSize: config.sourcePageSize },
        { ...syncDeps(), onProgress: (progress) => onProgress([syncLine(progress)]) },
        signal,
      ),
    lookUpParty: (id, signal) => lookUpParty(id, syncDeps(), signal),
    clock: openClock(asked),
    sourceLatency: async (signal) => {
      await asked().lists.page(CLOCK_QUESTION, signal);
      return asked().listLatency() ?? { lastMs: 0, medianMs: 0 };
    },
    export: (request, call) => exportFrom(new ExportStore(warehouse.db, holder), request, call),
    leaseLedgers: async (partyIds) => {
      const repository = await BatchStore.open(warehouse.db, partyIds, holder);
      return {
        export: (request, call) => exportFrom(repository, request, call),
        write: () => repository.write(),
        giveBack: () => repository.giveBack(),
        [Symbol.asyncDispose]: () => repository[Symbol.asyncDispose](),
      };
    },
  };
}

/** The source's time, as this process read it last. */
function openClock(asked: () => Source): Stages['clock'] {
  let last: { readonly clock: SourceClock; readonly atMs: number } | undefined;
  return async (signal, { maxAgeMs = 0 } = {}) => {
    const atMs = performance.now();
    if (last !== undefined && atMs - last.atMs < maxAgeMs) return last.clock;
    const { blockTime, answeredAt } = await asked().lists.page(CLOCK_QUESTION, signal);
    const clock = sourceClock(blockTime, nowMicros(), answeredAt);
    last = { clock, atMs };
    return clock;
  };
}

/** What works without the source. */
function stagesOfStores(parts: StageParts): Omit<Stages, FromSource> {
  const { config, log, warehouse, store, holder } = parts;
  const lake = lakeDeps(parts);
  const reports = { store: new ReportStore(warehouse), objects: store };
  const archive = new ExportArchiveStore(warehouse.db);
  const reader = new ObjectLedgerReader(
    exportIndex(new ExportStore(warehouse.db), archive),
    store,
    new LoadedRows(openRows(warehouse.pool)),
  );
  const catchUp = watchStore(rebuildDeps(parts));
  return {
    readLedger: (question, signal) => reader.read(question, signal),
    load: (request, call) => load(request, parts, lake, call),
    verify: async ({ deep, scope, against }, { signal, onProgress }) => {
      const check: LakeCheck = (options, either) => verifyLake(lake, options, either);
      const { verdict, ...evidence } = await verify(
        { repository: new VerifyStore(warehouse), objects: store, lake: check },
        signal,
        { deep, scope, onProgress: (counts) => onProgress([verifyLine(counts)]) },
      );
      if (against === undefined) return { verdict, evidence: storable(evidence) };
      const compared = await compareWithReport(
        decodeReport(against.text, against.where),
        against.where,
        reports,
        signal,
      );
      return {
        verdict: compared.problemCount === 0 ? verdict : 'failed',
        evidence: storable({ ...evidence, against: compared }),
      };
    },
    publishReport: (run, outcome, covers, signal) => publishReport(run, outcome, covers, reports, signal),
    catchUpWithStore: async (signal, { maxAgeMs = 0 } = {}) => {
      const found = await catchUp(signal, maxAgeMs);
      if (found === undefined) return;
      const { problemCount: problems } = found;
      log.warn({ ...found, problems }, 'Learned from the store what the database had forgotten');
    },
    tryStore: async (signal) => {
      const found = await store.tryOut(signal);
      return { isWrittenOnce: isWrittenOnce(found), detail: describeStore(store.url, found) };
    },
    listedParties: (given) => findListedParties(warehouse.db, given),
    recordCoverage: async (signal) => {
      try {
        await recordCoverage({ repository: new CoverageStore(warehouse.pool), objects: store }, signal);
      } catch (error) {
        signal.throwIfAborted();
        // Nothing is lost by it: the next run records this one as well.
        log.warn({ err: error }, 'What is covered could not be recorded in the store');
      }
    },
    mergeSegments: async (runId, signal) => {
      const { compression, segmentBytesMax } = exportSettings(config);
      const repository = new ExportStore(warehouse.db, holder);
      const candidates = new MergeStore(warehouse.db);
      const deps = { repository, candidates, objects: store, compression, segmentBytesMax, runId, log };
      return storable(await mergeAll(deps, signal));
    },
    tidy: async (signal) => {
      await tidyStore({ objects: store, archive, log }, signal);
    },
  };
}

function rebuildDeps({ warehouse, store }: StageParts): RebuildDeps {
  return { repository: new RebuildStore(warehouse.db), objects: store };
}

async function load(
  { runId, rebuild: isRebuild }: { readonly runId: string; readonly rebuild: boolean },
  parts: StageParts,
  lake: LakeDeps,
  { signal, onProgress }: StageCall,
): Promise<VerdictWithEvidence> {
  const { config, warehouse, store, log } = parts;
  const rebuilt = isRebuild ? await rebuildIfEmpty(rebuildDeps(parts), signal) : undefined;
  if (rebuilt !== undefined)
    log.info({ ...rebuilt, problems: rebuilt.problemCount }, 'Manifest rebuilt from the objects');
  const reports = { store: new ReportStore(warehouse), objects: store };
  const restored =
    rebuilt === undefined
      ? undefined
      : await restoreReports(reports, signal, (key, error) =>
          log.warn({ key, reason: error.message }, 'A report could not be read'),
        );
  let [parties, segments, rows] = [0, 0, 0n];
  const kept = new RowSpool(scratchDirOf(config));
  const repository = new LoadStore(warehouse);
  const now = await loadAll({ repository, objects: store, keeper: kept }, signal, (party) => {
    parties += 1;
    segments += party.segments;
    rows += party.rows;
    onProgress([loadLine(parties, segments, rows)]);
  });
  // A delivery of this run that was killed has loaded its part already.
  const loaded = { ...now, ...(await repository.loadedSince(runId)) };
  const built = await buildLake({ ...lake, kept }, signal, (progress) => onProgress([lakeLine(progress)]));
  if (built.rowsSent > 0n) {
    const { rowsSent, version } = built;
    log.info(
      { rowsSent, version },
      'The warehouse sent rows for the lake that no load had left on this machine',
    );
  }
  const { verdict, ...evidence } = loaded;
  const isUnread = rebuilt !== undefined && rebuilt.problemCount > 0;
  return {
    verdict: worst([verdict, isUnread ? 'incomplete' : 'complete']),
    evidence: storable({
      ...evidence,
      lake: built,
      ...(rebuilt === undefined ? {} : { rebuilt, restoredReports: restored }),
    }),
  };
}

function exportIndex(exports: ExportStore, archive: ExportArchiveStore): LedgerIndex {
  return {
    coverage: (unit) => exports.coverage(unit),
    currentSegments: (unit, range) => archive.currentSegments(unit, range),
  };
}
