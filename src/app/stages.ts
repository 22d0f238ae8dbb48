/** Composes the stages with their stores, for jobs and commands to call. */
import type { StageCall, Stages } from '../runs/job.ts';
import { openLedger } from '../exports/reading/read-ledger.ts';
import type { ReadingFacts } from '../exports/reading/plan-reading.ts';
import { readReadingFacts } from '../exports/store/reading-facts.ts';
import { type Config, sourceMissing } from '../config/environment.ts';
import { toStorableJson } from '../json/json-value.ts';
import type { Log } from '../logging/log.ts';
import { nowMicros } from '../time/time.ts';
import {
  PermanentError,
  RetryableError,
  UnreachableError,
  errorCode,
} from '../errors/errors.ts';
import { isSourceAway } from '../errors/faults.ts';
import { type VerdictWithEvidence, worst } from '../errors/verdict.ts';
import { isHexId } from '../ledger/ids.ts';
import { exportParty } from '../exports/export-party.ts';
import type { RowPool } from '../exports/download/row-pool.ts';
import { mergeAll } from '../exports/merging/merge-all.ts';
import { collectGarbage } from '../exports/publishing/garbage-collection.ts';
import {
  type SourceClock,
  sourceClock,
} from '../exports/planning/source-clock.ts';
import { buildLake, type LakeDeps } from '../lake/build/build.ts';
import { scratchFolder } from '../lake/local/scratch.ts';
import { verifyLake } from '../lake/verify/verify-lake.ts';
import { LineFiles } from '../warehouse/line-files.ts';
import { loadAll } from '../warehouse/load-all.ts';
import {
  adoptUnknownManifests,
  rebuildIfEmpty,
} from '../warehouse/store/rebuild.ts';
import { publishRanges } from '../warehouse/store/range-records.ts';
import {
  forgetMark,
  isStoreAhead,
  renewMark,
} from '../warehouse/store/store-mark.ts';
import type { LakeCheck } from '../warehouse/ports.ts';
import type { Database } from '../postgres/database.ts';
import { shownUrl } from '../postgres/identity.ts';
import { verify, type VerifyCounts } from '../warehouse/verify.ts';
import { isWrittenOnce, type ObjectStore } from '../storage/object-store.ts';
import type { Source } from '../source/source-client.ts';
import {
  findListedParties,
  findWitnesses,
  isOtherNetwork,
  readClaimedHeight,
} from '../lists/store/list-state.ts';
import { estimateListSize } from '../lists/list-size.ts';
import { lookUpParty } from '../lists/look-up-party.ts';
import { syncList } from '../lists/sync-list.ts';
import { ExportArchiveStore } from '../exports/store/export-archive.ts';
import type { ExportRepository } from '../exports/store/export-repository.ts';
import { BatchStore } from '../exports/store/batch-store.ts';
import { ExportStore } from '../exports/store/export-store.ts';
import { readLatest } from '../proof/latest.ts';
import { storedFiles } from '../proof/log.ts';
import { ProofStore } from '../proof/store/proof-store.ts';
import { decodeReport } from '../runs/nightly-report.ts';
import { compareWithReport } from '../runs/store/compare-report.ts';
import { restoreReports } from '../runs/store/publish-report.ts';
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
import type { Ownership } from './ownership.ts';
import { restoreLists } from './restore-lists.ts';
import { isCheckpoint, publishNight, verifyNights } from './night-proof.ts';
import { compareWithSource } from './source-statement.ts';

/**
 * The request for reading the source's time: the smallest page that the source serves
 * reliably.
 */
const CLOCK_QUESTION = { newestFirst: true, size: 2, isSmall: true } as const;

interface StageParts extends Pick<Base, 'warehouse' | 'state'> {
  readonly config: Config;
  readonly log: Log;
  /** The store that verifies on each write that it belongs to this mirror. */
  readonly store: ObjectStore;
  readonly ownership: Ownership;
  readonly lake: LakeDeps;
  /**
   * The source; undefined if SOURCE_URL is not set, in which case stages that need it
   * throw.
   */
  readonly source: Source | undefined;
  readonly rowPool: RowPool;
  /**
   * Delay, in milliseconds, before a request to the source is repeated; by default, each
   * stage decides.
   */
  readonly askAgainMs?: number | undefined;
  /** Identifies this process in its leases. */
  readonly holder: number;
}

/**
 * State that is passed from the start of a nightly run to its end: whether all keys of
 * the store have been listed. A nightly run lists them at most once.
 */
interface NightListing {
  isListed: boolean;
}

export function composeStages(parts: StageParts): Stages {
  const nights = { isListed: false };
  const stages = {
    ...stagesOfSource(parts),
    ...stagesOfLoads(parts, nights),
    ...stagesOfStore(parts, nights),
  };
  return { ...stages, ...stagesOfSourceLog(parts, stages) };
}

/**
 * The stage that compares this mirror with the statements of a source that is itself a
 * mirror.
 */
function stagesOfSourceLog(
  { config, warehouse, store: objects, source }: StageParts,
  { load }: Pick<Stages, 'load'>,
): Pick<Stages, 'compareWithSource'> {
  return {
    compareWithSource: async (night, call) => {
      const { sourceUrl } = config;
      if (source === undefined || sourceUrl === undefined) return undefined;
      const { runId } = night;
      return compareWithSource(night, {
        config,
        warehouse,
        objects,
        proof: source.proof,
        sourceUrl: shownUrl(sourceUrl),
        signal: call.signal,
        askAgain: call.askAgain,
        load: async () => {
          await load({ runId, rebuild: false }, call);
        },
      });
    },
  };
}

/**
 * The stages that read the source. Each stage that needs the source throws a UsageError
 * if there is none.
 */
function stagesOfSource(parts: StageParts) {
  const { config, warehouse, state, source, holder, askAgainMs } = parts;
  const asked = (): Source => {
    if (source === undefined) throw sourceMissing('this asks the source');
    return source;
  };
  const store = new ListStore(warehouse.db, holder);
  const listDeps = () => ({
    source: asked().lists,
    store,
    resumePoints: state,
    ...(askAgainMs !== undefined && { pauseMs: askAgainMs }),
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
          ...(askAgainMs !== undefined && { pauseMs: () => askAgainMs }),
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
    isListed: async (id, signal) => {
      try {
        return (await asked().lists.party(id, signal)) !== undefined;
      } catch (error) {
        // The source may refuse an id because of its form, but only if the id is not
        // hexadecimal. A refused hexadecimal id means that the source cannot filter by id
        // at all.
        if (errorCode(error) !== 'SOURCE_REFUSED' || isHexId(id)) throw error;
        return false;
      }
    },
    isOtherNetwork: async (signal) =>
      (await isOtherNetwork(warehouse.db)) ||
      !(await isKnownNetwork(asked().lists, parts, signal)),
    clock: openClock(asked, warehouse.db),
    sourceLatency: async (signal) => {
      await asked().lists.page({ list: 'parties', ...CLOCK_QUESTION }, signal);
      return asked().listLatency() ?? { lastMs: 0, medianMs: 0 };
    },
    estimateListSizes: async (signal) => {
      const size = config.sourcePageSize;
      return [
        await estimateListSize(
          asked().lists,
          { list: 'parties', size },
          signal,
        ),
        await estimateListSize(
          asked().lists,
          { list: 'checkpoints', size },
          signal,
        ),
      ];
    },
    isSourceThere: (signal) => isSourceThere(asked().lists, signal),
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

/**
 * Whether the source serves the network that this mirror knows. The source of a different
 * network would return empty responses, and an empty response closes a range without
 * entries. Therefore, if the source's address has changed since the last claim, no ledger
 * is requested until the source has listed a party that the mirror already has.
 */
async function isKnownNetwork(
  lists: Source['lists'],
  { config, warehouse }: StageParts,
  signal: AbortSignal,
): Promise<boolean> {
  const { sourceUrl } = config;
  if (sourceUrl === undefined) return true;
  const witnesses = await findWitnesses(warehouse.db, shownUrl(sourceUrl));
  for (const witness of witnesses) {
    try {
      if ((await lists.party(witness, signal)) !== undefined) return true;
    } catch (error) {
      // A refusal proves nothing either way; the lists may still identify the source.
      signal.throwIfAborted();
      if (!(error instanceof PermanentError)) throw error;
    }
  }
  return witnesses.length === 0;
}

/**
 * Whether the source responds to a request for at least one of the lists; each list is
 * tried once. Any response shows that the source is reachable, even a refusal.
 */
async function isSourceThere(
  lists: Source['lists'],
  signal: AbortSignal,
): Promise<boolean> {
  for (const list of ['parties', 'checkpoints'] as const) {
    try {
      const request = { list, ...CLOCK_QUESTION, isOneAttempt: true };
      await lists.page(request, signal);
      return true;
    } catch (error) {
      signal.throwIfAborted();
      if (!isSourceAway(error)) return true;
    }
  }
  return false;
}

/**
 * Returns a function that reads the source's clock and caches the last reading in this
 * process.
 */
function openClock(asked: () => Source, db: Database): Stages['clock'] {
  let last: { readonly clock: SourceClock; readonly atMs: number } | undefined;
  return async ({ signal, maxAgeMs = 0 }) => {
    const atMs = performance.now();
    if (last !== undefined && atMs - last.atMs < maxAgeMs) return last.clock;
    const claimed = await readClaimedHeight(db);
    const clock = await askClock(asked().lists, claimed, signal);
    last = { clock, atMs };
    return clock;
  };
}

/**
 * Reads the source's time from either list. If the source serves neither, ranges are
 * closed only up to its newest entries.
 * @throws the error from the last list if neither can be reached
 */
async function askClock(
  lists: Source['lists'],
  claimedHeight: bigint | undefined,
  signal: AbortSignal,
): Promise<SourceClock> {
  let away: Error | undefined;
  let isAnswered = false;
  for (const list of ['parties', 'checkpoints'] as const) {
    try {
      const page = await lists.page({ list, ...CLOCK_QUESTION }, signal);
      const { blockHeight } = page;
      // A lagging node must not lower the height for later exports.
      const height =
        blockHeight === undefined || (claimedHeight ?? 0n) < blockHeight
          ? blockHeight
          : claimedHeight;
      return sourceClock({ ...page, height }, nowMicros());
    } catch (error) {
      signal.throwIfAborted();
      const isRefused =
        !(error instanceof UnreachableError) &&
        (error instanceof PermanentError || error instanceof RetryableError);
      if (!isRefused) throw error;
      if (isSourceAway(error)) away = error;
      else isAnswered = true;
    }
  }
  if (away !== undefined && !isAnswered) throw away;
  return sourceClock({ blockTime: undefined }, nowMicros());
}

/**
 * The stages that load published objects into the warehouse and the lake, and verify that
 * objects, warehouse and lake agree.
 */
function stagesOfLoads(parts: StageParts, nights: NightListing) {
  const { config, log, warehouse, store, ownership, lake } = parts;
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
  const { scratchDir } = lake;
  return {
    load: async ({ runId, rebuild }, call) => {
      await ownership.require(call.signal, rebuild);
      const rebuilt = rebuild
        ? await rebuildFromStore(parts, call.signal)
        : undefined;
      const { verdict, evidence } = await loadPublished(parts, runId, call);
      if (rebuilt === undefined) return { verdict, evidence };
      return {
        verdict: worst([verdict, rebuilt.verdict]),
        evidence: toStorableJson({ ...evidence, ...rebuilt.evidence }),
      };
    },
    verify: async (request, { signal, onProgress }) => {
      const { deep, scope, against, isLossAccepted = false } = request;
      const options = {
        deep,
        scope,
        isLossAccepted,
        onProgress: (counts: VerifyCounts) => onProgress([verifyLine(counts)]),
      };
      const standing = await ownership.examine(signal);
      const { verdict, ...checked } = await verify(verifying, signal, {
        ...options,
        mayDistrust: standing !== 'reader',
      });
      const kept = isCheckpoint(against?.text) ? against?.text : undefined;
      const proof =
        scope === 'whole'
          ? await verifyNights(
              { config, warehouse, objects: store },
              { isDeep: deep, kept, signal },
            )
          : undefined;
      const evidence = proof === undefined ? checked : { ...checked, proof };
      const isLogRight = proof === undefined || proof.problemCount === 0;
      if (against === undefined || kept !== undefined) {
        return {
          verdict: isLogRight ? verdict : 'failed',
          evidence: toStorableJson(evidence),
        };
      }
      const report = decodeReport(against.text, against.where);
      const compared = await compareWithReport(
        report,
        against.where,
        reportsBy(signal),
      );
      return {
        verdict: compared.problemCount === 0 && isLogRight ? verdict : 'failed',
        evidence: toStorableJson({ ...evidence, against: compared }),
      };
    },
    publishReport: (run, ended, signal) =>
      publishNight(run, ended, { config, warehouse, objects: store }, signal),
    catchUpWithStore: async (signal, partyId) => {
      await ownership.require(signal);
      const isWhole = partyId === undefined;
      if (await isStoreAhead(rebuilding, signal)) {
        if (isWhole) nights.isListed = true;
        const found = await adoptUnknownManifests(rebuilding, signal, partyId);
        if (found !== undefined) {
          const lists = isWhole
            ? await restoreLists({ ...rebuilding, scratchDir }, signal)
            : undefined;
          log.warn(
            { ...found, problems: found.problemCount, lists },
            'The store supplied facts that the database had lost',
          );
        }
      }
      if (isWhole) await renewMark(rebuilding, signal);
    },
  } satisfies Partial<Stages>;
}

/**
 * Loads what was published since the last load, and builds the lake from it. One reading
 * of the objects serves both: the lines that go to the database are kept for the build.
 */
async function loadPublished(
  { log, warehouse, store: objects, lake }: StageParts,
  runId: string,
  { signal, onProgress }: StageCall,
): Promise<VerdictWithEvidence> {
  const loading = { repository: new LoadStore(warehouse), objects };
  let parties = 0;
  let segments = 0;
  let rows = 0n;
  await using folder = await scratchFolder(lake.scratchDir);
  await using lineFiles = await LineFiles.open(folder.path);
  const now = await loadAll({ ...loading, lineFiles }, signal, (party) => {
    parties += 1;
    segments += party.segments;
    rows += party.rows;
    onProgress([loadLine(parties, segments, rows)]);
  });
  // An earlier attempt at this run may have been killed after loading some of the data,
  // so report the run's totals rather than this call's counts.
  const { verdict, ...loaded } = {
    ...now,
    ...(await loading.repository.loadedSince(runId)),
  };
  const built = await buildLake(
    { ...lake, loadedLines: lineFiles },
    signal,
    (progress) => onProgress([lakeLine(progress)]),
  );
  if (built.rowsSent > 0n) {
    log.info(
      { rows: built.rowsSent, reason: lineFiles.failure },
      'The database sent rows to the build of the lake',
    );
  }
  return { verdict, evidence: toStorableJson({ ...loaded, lake: built }) };
}

/**
 * Adopts everything in the store that is missing from the database: manifests, ranges,
 * lists and nightly reports.
 * @returns undefined if nothing was missing
 */
async function rebuildFromStore(
  { log, warehouse, store: objects, lake }: StageParts,
  signal: AbortSignal,
): Promise<VerdictWithEvidence | undefined> {
  const { db } = warehouse;
  const rebuilt =
    (await rebuildIfEmpty({ db, objects }, signal)) ??
    (await adoptUnknownManifests({ db, objects }, signal));
  if (rebuilt === undefined) return undefined;
  log.info(
    { ...rebuilt, problems: rebuilt.problemCount },
    'Manifest rebuilt from the objects',
  );
  const { scratchDir } = lake;
  const restoredLists = await restoreLists({ db, objects, scratchDir }, signal);
  const restoredReports = await restoreReports(
    { warehouse, objects, signal },
    (key, error) =>
      log.warn({ key, reason: error.message }, 'A report could not be read'),
  );
  await renewMark({ db, objects }, signal);
  const isWhole =
    rebuilt.problemCount === 0 && restoredLists.problem === undefined;
  return {
    verdict: isWhole ? 'complete' : 'incomplete',
    evidence: toStorableJson({ rebuilt, restoredLists, restoredReports }),
  };
}

/** The stages that read and maintain the published objects in the store. */
function stagesOfStore(
  { config, log, warehouse, store: objects, ownership, holder }: StageParts,
  nights: NightListing,
) {
  const archive = new ExportArchiveStore(warehouse.db);
  const repository = new ExportStore(warehouse.db, holder);
  return {
    openLedger: (question, signal) =>
      openLedger(
        {
          exports: repository,
          readFacts: () => readingFacts(warehouse.db, config),
          objects,
        },
        question,
        signal,
      ),
    readProofFile: (path, range, signal) =>
      storedFiles(objects, signal).read(path, range),
    readLatestStatement: async (from, signal) => {
      const known = await new ProofStore(warehouse).readLog();
      const files = storedFiles(objects, signal);
      return readLatest(files, known?.publicKey ?? null, from);
    },
    listedParties: (given) => findListedParties(warehouse.db, given),
    tryStore: async (signal) => {
      await ownership.require(signal);
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
    tidy: async (signal) => {
      await publishRanges({ warehouse, objects }, signal);
      const { isListed } = nights;
      nights.isListed = false;
      const deps = { objects, archive, log, isListed };
      const { keptObjects } = await collectGarbage(deps, signal);
      // The objects that were kept may be unknown to the database, so make the next
      // nightly run look for them.
      if (keptObjects > 0) await forgetMark({ db: warehouse.db });
    },
  } satisfies Partial<Stages>;
}

/**
 * Reads the facts needed to read a ledger. "Every asset" means the assets that the last
 * nightly run recorded or, before the first nightly run, the configured assets.
 * Completeness uses the same definition.
 */
async function readingFacts(
  db: Database,
  { sourceAssets = [] }: Config,
): Promise<ReadingFacts> {
  const { isAssetDemanded, assetIds, newestColumns } =
    await readReadingFacts(db);
  const configured = assetIds.length > 0 ? assetIds : sourceAssets;
  return {
    demandedAssets: isAssetDemanded ? configured : [],
    newestColumns,
    now: nowMicros(),
  };
}
