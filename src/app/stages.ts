/** The stages composed with their stores, as jobs and commands call them. */
import type { StageCall, Stages } from '../runs/job.ts';
import { readLedger } from '../exports/reading/read-ledger.ts';
import { type Config, sourceMissing } from '../config/environment.ts';
import { toStorableJson } from '../json/json-value.ts';
import type { Log } from '../logging/log.ts';
import { nowMicros } from '../time/time.ts';
import { worst } from '../errors/verdict.ts';
import { exportParty } from '../exports/export-party.ts';
import type { RowPool } from '../exports/download/row-pool.ts';
import { mergeAll } from '../exports/merging/merge-all.ts';
import { collectGarbage } from '../exports/publishing/garbage-collection.ts';
import {
  type SourceClock,
  sourceClock,
} from '../exports/planning/source-clock.ts';
import { buildLake, type LakeDeps } from '../lake/build/build.ts';
import { verifyLake } from '../lake/verify/verify-lake.ts';
import { loadAll } from '../warehouse/load-all.ts';
import {
  adoptUnknownManifests,
  rebuildIfEmpty,
} from '../warehouse/store/rebuild.ts';
import type { LakeCheck } from '../warehouse/ports.ts';
import { verify, type VerifyCounts } from '../warehouse/verify.ts';
import { isWrittenOnce, type ObjectStore } from '../storage/object-store.ts';
import type { Source } from '../source/source-client.ts';
import { findListedParties } from '../lists/store/list-state.ts';
import { lookUpParty, syncList } from '../lists/sync-list.ts';
import { ExportArchiveStore } from '../exports/store/export-archive.ts';
import type { ExportRepository } from '../exports/store/export-repository.ts';
import { BatchStore } from '../exports/store/batch-store.ts';
import { ExportStore } from '../exports/store/export-store.ts';
import { decodeReport } from '../runs/report-form.ts';
import { compareWithReport } from '../runs/store/compare-report.ts';
import { publishReport, restoreReports } from '../runs/store/publish-report.ts';
import { LoadStore } from '../warehouse/store/load-store.ts';
import { VerifyStore } from '../warehouse/store/verify-store.ts';
import { ListStore } from '../lists/store/list-store.ts';
import {
  exportLine,
  lakeLine,
  loadLine,
  syncLine,
  verifyLine,
} from '../runs/progress.ts';
import type { Base } from './base.ts';
import { describeStore } from './describe-store.ts';

/** Asked for its time alone; as small as the source serves pages safely. */
const CLOCK_QUESTION = { list: 'parties', newestFirst: true, size: 2 } as const;

interface StageParts extends Pick<Base, 'warehouse' | 'state'> {
  readonly config: Config;
  readonly log: Log;
  readonly store: ObjectStore;
  readonly lake: LakeDeps;
  /** Absent where no SOURCE_URL is set: what asks the source then refuses. */
  readonly source: Source | undefined;
  readonly rowPool: RowPool;
  /** Names this process in its leases. */
  readonly holder: number;
}

export function composeStages(parts: StageParts): Stages {
  return {
    ...stagesOfSource(parts),
    ...stagesOfLoads(parts),
    ...stagesOfStore(parts),
  };
}

/** @throws UsageError from whatever asks the source where there is none */
function stagesOfSource(parts: StageParts) {
  const { config, warehouse, state, source, holder } = parts;
  const asked = (): Source => {
    if (source === undefined) throw sourceMissing('this asks the source');
    return source;
  };
  const store = new ListStore(warehouse.db, holder);
  const listDeps = () => ({
    source: asked().lists,
    store,
    resumePoints: state,
  });
  const exportBy =
    (repository: ExportRepository): Stages['export'] =>
    async (request, { signal, onProgress }) => {
      const { verdict, evidence, rows, bytes, objectKeys } = await exportParty(
        request,
        {
          source: asked().ledger,
          repository,
          objects: parts.store,
          compression: config.exportCompression,
          segmentBytesMax: config.exportSegmentMax,
          retentionMicros: BigInt(config.sourceRetention) * 1000n,
          exportLimit: config.sourceExportConcurrency,
          assets: config.sourceAssets,
          rowPool: parts.rowPool,
          onProgress: (progress) => onProgress([exportLine(progress)]),
        },
        signal,
      );
      return {
        verdict,
        evidence: toStorableJson({
          ...evidence,
          rows,
          bytes,
          segments: objectKeys.length,
        }),
      };
    };
  return {
    sync: ({ full: isAudit, ...request }, { signal, onProgress }) =>
      syncList(
        { ...request, isAudit, pageSize: config.sourcePageSize },
        {
          ...listDeps(),
          onProgress: (progress) => onProgress([syncLine(progress)]),
        },
        signal,
      ),
    lookUpParty: (id, signal) => lookUpParty(id, listDeps(), signal),
    clock: openClock(asked),
    sourceLatency: async (signal) => {
      await asked().lists.page(CLOCK_QUESTION, signal);
      return asked().listLatency() ?? { lastMs: 0, medianMs: 0 };
    },
    export: (request, call) =>
      exportBy(new ExportStore(warehouse.db, holder))(request, call),
    leaseLedgers: async (partyIds) => {
      const batch = await BatchStore.open(warehouse.db, partyIds, holder);
      return {
        export: exportBy(batch),
        write: () => batch.write(),
        releaseUnstarted: () => batch.releaseUnstarted(),
        [Symbol.asyncDispose]: () => batch[Symbol.asyncDispose](),
      };
    },
  } satisfies Partial<Stages>;
}

/** The source's time, as this process read it last. */
function openClock(asked: () => Source): Stages['clock'] {
  let last: { readonly clock: SourceClock; readonly atMs: number } | undefined;
  return async ({ signal, maxAgeMs = 0 }) => {
    const atMs = performance.now();
    if (last !== undefined && atMs - last.atMs < maxAgeMs) return last.clock;
    const { blockTime, answeredAt } = await asked().lists.page(
      CLOCK_QUESTION,
      signal,
    );
    const clock = sourceClock(blockTime, nowMicros(), answeredAt);
    last = { clock, atMs };
    return clock;
  };
}

/**
 * From published objects into the warehouse and the lake, and whether all of it agrees.
 */
function stagesOfLoads({ log, warehouse, store, lake }: StageParts) {
  const reportsBy = (signal: AbortSignal) => ({
    warehouse,
    objects: store,
    signal,
  });
  const rebuilding = { db: warehouse.db, objects: store };
  const lakeCheck: LakeCheck = (options, signal) =>
    verifyLake(lake, options, signal);
  const verifying = {
    repository: new VerifyStore(warehouse),
    objects: store,
    lake: lakeCheck,
  };
  const loading = { repository: new LoadStore(warehouse), objects: store };
  const loadPublished = async (
    runId: string,
    { signal, onProgress }: StageCall,
  ) => {
    let parties = 0;
    let segments = 0;
    let rows = 0n;
    const now = await loadAll(loading, signal, (party) => {
      parties += 1;
      segments += party.segments;
      rows += party.rows;
      onProgress([loadLine(parties, segments, rows)]);
    });
    // A delivery of this run that was killed has loaded its part already.
    const { verdict, ...loaded } = {
      ...now,
      ...(await loading.repository.loadedSince(runId)),
    };
    const built = await buildLake(lake, signal, (progress) =>
      onProgress([lakeLine(progress)]),
    );
    return { verdict, evidence: toStorableJson({ ...loaded, lake: built }) };
  };
  return {
    load: async ({ runId, rebuild }, call) => {
      const rebuilt = rebuild
        ? ((await rebuildIfEmpty(rebuilding, call.signal)) ??
          (await adoptUnknownManifests(rebuilding, call.signal)))
        : undefined;
      if (rebuilt === undefined) return loadPublished(runId, call);
      log.info(
        { ...rebuilt, problems: rebuilt.problemCount },
        'Manifest rebuilt from the objects',
      );
      const restoredReports = await restoreReports(
        reportsBy(call.signal),
        (key, error) =>
          log.warn(
            { key, reason: error.message },
            'A report could not be read',
          ),
      );
      const { verdict, evidence } = await loadPublished(runId, call);
      return {
        verdict: worst([
          verdict,
          rebuilt.problemCount > 0 ? 'incomplete' : 'complete',
        ]),
        evidence: toStorableJson({ ...evidence, rebuilt, restoredReports }),
      };
    },
    verify: async ({ deep, scope, against }, { signal, onProgress }) => {
      const options = {
        deep,
        scope,
        onProgress: (counts: VerifyCounts) => onProgress([verifyLine(counts)]),
      };
      const { verdict, ...evidence } = await verify(verifying, signal, options);
      if (against === undefined)
        return { verdict, evidence: toStorableJson(evidence) };
      const report = decodeReport(against.text, against.where);
      const compared = await compareWithReport(
        report,
        against.where,
        reportsBy(signal),
      );
      return {
        verdict: compared.problemCount === 0 ? verdict : 'failed',
        evidence: toStorableJson({ ...evidence, against: compared }),
      };
    },
    publishReport: (run, ended, signal) =>
      publishReport(run, ended, reportsBy(signal)),
    catchUpWithStore: async (signal, partyId) => {
      const found = await adoptUnknownManifests(rebuilding, signal, partyId);
      if (found === undefined) return;
      const { problemCount: problems } = found;
      log.warn(
        { ...found, problems },
        'Learned from the store what the database had forgotten',
      );
    },
  } satisfies Partial<Stages>;
}

/** What is published, and the store that it lies in. */
function stagesOfStore({
  config,
  log,
  warehouse,
  store: objects,
  holder,
}: StageParts) {
  const archive = new ExportArchiveStore(warehouse.db);
  const repository = new ExportStore(warehouse.db, holder);
  return {
    readLedger: (question, signal) =>
      readLedger({ exports: repository, objects }, question, signal),
    listedParties: (given) => findListedParties(warehouse.db, given),
    tryStore: async (signal) => {
      const found = await objects.probe(signal);
      return {
        isWrittenOnce: isWrittenOnce(found),
        detail: describeStore(objects.url, found),
      };
    },
    mergeSegments: async (runId, signal) => {
      const {
        exportCompression: compression,
        exportSegmentMax: segmentBytesMax,
      } = config;
      const deps = {
        repository,
        archive,
        objects,
        compression,
        segmentBytesMax,
        runId,
        log,
      };
      return toStorableJson(await mergeAll(deps, signal));
    },
    tidy: async (signal) =>
      void (await collectGarbage({ objects, archive, log }, signal)),
  } satisfies Partial<Stages>;
}
