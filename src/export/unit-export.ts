/** The work on a claimed unit: ask, check against what is known, cut, publish. */
import { BEGINNING, ceilSecond, floorSecond, formatInstant } from '../core/time.ts';
import type { Outcome } from '../core/verdict.ts';
import { type AnchorFinding, compareAnchor } from './anchor.ts';
import { buildPublication } from './build-publication.ts';
import { type ClosedPart, cutPart } from './cut.ts';
import { keepLease, LEASE_MS, waitFor } from './lease.ts';
import type { Coverage, Publication, SourceProfile, UnitClaim } from './ports.ts';
import { publish, type PublishDeps, recover, spoolPrefix, type Step } from './publish.ts';
import type { Range } from './ranges.ts';
import { receive, type Received, type ReceivedPart } from './receive.ts';
import { type AskPlan, planAsk, type Target } from './remaining.ts';
import { type ExportDeps, type ExportOutcome, type ExportRequest, WAIT_MS } from './request.ts';

const QUESTIONS_MAX = 3;
/** A second way to ask where known rows did not come back: the start a little earlier. */
const SECOND_WAY_MICROS = 3_600_000_000n;

export class UnitExport {
  readonly #claim: UnitClaim;
  readonly #request: ExportRequest;
  readonly #deps: ExportDeps;
  readonly #checkLease: () => void;
  readonly #signal: AbortSignal;
  readonly #startedMs = performance.now();
  readonly #publishing: PublishDeps;
  #isIntended = false;
  #spoolFiles = 0;
  #questions = 0;
  #segments = 0;

  constructor(
    claim: UnitClaim,
    request: ExportRequest,
    deps: ExportDeps,
    checkLease: () => void,
    signal: AbortSignal,
  ) {
    this.#claim = claim;
    this.#request = request;
    this.#deps = deps;
    this.#checkLease = checkLease;
    this.#signal = signal;
    const checkpoint = async (step: Step): Promise<void> => {
      await deps.checkpoint?.(step);
      checkLease();
    };
    this.#publishing = { books: deps.books, objects: deps.objects, checkpoint };
  }

  async run(): Promise<ExportOutcome> {
    await this.#publishing.checkpoint('claimed');
    const adopted = await recover(this.#claim, this.#publishing, this.#signal);
    try {
      const outcome = await this.#ask(adopted);
      await this.#deps.books.succeed(this.#claim);
      return outcome;
    } catch (error) {
      // What is intended already can be finished from the spool by the next claim.
      if (!this.#isIntended) await this.#clearSpool().catch(() => undefined);
      throw error;
    }
  }

  #clearSpool(): Promise<unknown> {
    return this.#deps.objects.clearSpool(spoolPrefix(this.#claim), new Set());
  }

  /** Asks until an answer can be trusted, or it is clear that none can. */
  async #ask(adopted: readonly Publication[]): Promise<ExportOutcome> {
    const findings: AnchorFinding[] = [];
    let distrusted: Range | undefined;
    for (;;) {
      const [coverage, profile] = await Promise.all([
        this.#deps.books.coverage(this.#claim.unit),
        this.#deps.books.profile(),
      ]);
      const plan = planAsk(this.#target(), coverage, profile, distrusted);
      if (plan === undefined) return this.#outcome('complete', adopted, undefined, { covered: true });
      const received = await this.#receive(plan, findings.length === 1);
      await this.#learn(profile, received);
      const finding = plan.anchor === undefined ? undefined : compareAnchor(plan.anchor.tail, received);
      if (finding === undefined || finding.state === 'verified' || finding.state === 'row form changed') {
        return this.#publish({ plan, received, coverage, adopted, anchor: finding?.state, findings });
      }
      findings.push(finding);
      await this.#clearSpool();
      const isOver = this.#questions >= QUESTIONS_MAX || (findings.length > 1 && finding.state === 'fewer');
      if (isOver)
        return this.#outcome('suspicious', adopted, received, { anchor: finding, findings: findings.length });
      // Twice the same surprise: what was known before is asked for again and replaced.
      if (findings.length > 1 && plan.anchor !== undefined) {
        distrusted = { from: plan.anchor.tail.from, to: plan.anchor.to };
      }
    }
  }

  #target(): Target {
    const { assetId, from, to, closedTo } = this.#request;
    return {
      assetId,
      from: floorSecond(from ?? BEGINNING),
      to: to === undefined ? undefined : ceilSecond(to),
      closedTo: floorSecond(closedTo),
    };
  }

  async #receive(plan: AskPlan, isSecondWay: boolean): Promise<Received> {
    const { books, source } = this.#deps;
    const { unit } = this.#claim;
    let takenAtMs = performance.now();
    const slot = await waitFor(
      'a place among the exports at once',
      () => {
        takenAtMs = performance.now();
        return books.takeSlot(this.#deps.slotsMax, LEASE_MS);
      },
      { waitMs: this.#deps.waitMs ?? WAIT_MS, signal: this.#signal },
    );
    await using lease = keepLease({
      what: 'a place among the exports at once',
      takenAtMs,
      renew: () => books.renewSlot(slot, LEASE_MS),
      release: () => books.freeSlot(slot),
    });
    const signal = AbortSignal.any([this.#signal, lease.signal]);
    this.#questions += 1;
    const { from } = plan.question;
    const isEarlier = isSecondWay && from !== undefined && from > SECOND_WAY_MICROS;
    const question = isEarlier ? { ...plan.question, from: from - SECOND_WAY_MICROS } : plan.question;
    await using answer = await source.ask({ ...unit, ...question }, signal);
    await this.#publishing.checkpoint('asked');
    const received = await receive(answer, unit, plan, {
      compression: this.#deps.compression,
      spoolFile: () => this.#spoolFile(),
      onProgress: ({ bytes, rows }) => {
        this.#checkLease();
        lease.check();
        this.#progress(bytes, rows);
      },
    });
    await this.#publishing.checkpoint('spooled');
    return received;
  }

  /** Releases that send one side filter rightly; a start and an end may be sent to them. */
  async #learn(profile: SourceProfile, received: Received): Promise<void> {
    const bounds = received.layout.sides === 'from' ? 'right' : 'unproven';
    if (profile.bounds !== bounds) await this.#deps.books.learn({ ...profile, bounds });
  }

  async #publish(ask: {
    readonly plan: AskPlan;
    readonly received: Received;
    readonly coverage: readonly Coverage[];
    readonly adopted: readonly Publication[];
    readonly anchor: string | undefined;
    readonly findings: readonly AnchorFinding[];
  }): Promise<ExportOutcome> {
    const { plan, received } = ask;
    const knownRows = plan.supersedes.reduce((sum, row) => sum + (row.open ? 0n : row.rows), 0n);
    const newRows = received.parts.reduce(
      (sum, part) => sum + (part.open ? 0 : (part.spooled?.rows ?? 0)),
      0,
    );
    if (BigInt(newRows) < knownRows) {
      // The source serves less than it did: retention, or a node that lags. What is known stays.
      await this.#clearSpool();
      const shrunk = { knownRows: String(knownRows), receivedRows: String(newRows) };
      return this.#outcome('suspicious', ask.adopted, received, { shrunk });
    }
    const parts = await this.#cut(received);
    this.#segments = parts.filter((part) => part.spooled !== undefined).length;
    this.#progress(received.bytes, received.rows);
    const { books, source } = this.#deps;
    const { warehouseId } = await books.identity();
    const seq = this.#segments === 0 ? 0n : await books.nextSeq();
    const publication = buildPublication(plan, received, parts, ask.coverage, {
      unit: this.#claim.unit,
      runId: this.#request.runId,
      source: source.baseUrl,
      warehouseId,
      seq,
      compression: this.#deps.compression,
      seenTime: this.#request.seenTime,
    });
    this.#isIntended = true;
    const published = await publish(this.#claim, publication, this.#publishing, this.#signal);
    return this.#outcome(
      ask.findings.length > 1 ? 'suspicious' : 'complete',
      [...ask.adopted, published],
      received,
      {
        anchor: ask.anchor ?? 'none',
        ...(ask.findings.length === 0 ? {} : { findings: ask.findings }),
      },
    );
  }

  async #cut(received: Received): Promise<ReceivedPart[]> {
    const options = {
      segmentBytesMax: this.#deps.segmentBytesMax,
      compression: this.#deps.compression,
      header: received.header,
      columns: received.layout.columns,
      spoolFile: () => this.#spoolFile(),
    };
    const parts: ReceivedPart[] = [];
    for (const part of received.parts) {
      if (isCuttable(part)) parts.push(...(await cutPart(part, options, this.#signal)));
      else parts.push(part);
    }
    return parts;
  }

  async #spoolFile(): Promise<{ name: string; path: string }> {
    this.#spoolFiles += 1;
    const name = `${spoolPrefix(this.#claim)}${this.#claim.token}.${this.#spoolFiles}.csv`;
    return { name, path: await this.#deps.objects.spoolPath(name) };
  }

  #progress(bytes: number, rows: number): void {
    const elapsedMs = performance.now() - this.#startedMs;
    this.#deps.onProgress?.({ ...this.#claim.unit, bytes, rows, segments: this.#segments, elapsedMs });
  }

  #outcome(
    verdict: Outcome['verdict'],
    publications: readonly Publication[],
    received: Received | undefined,
    evidence: Record<string, unknown>,
  ): ExportOutcome {
    const manifests = publications.flatMap((publication) =>
      publication.segments.map(({ manifest }) => manifest),
    );
    const rows = manifests.reduce((sum, manifest) => sum + manifest.rows, 0n);
    const { unit } = this.#claim;
    const leftOut = received?.leftOut ?? { party: 0n, asset: 0n, range: 0n };
    return {
      verdict,
      rows,
      bytes: manifests.reduce((sum, manifest) => sum + manifest.bytes, 0n),
      questions: this.#questions,
      objectKeys: manifests.map((manifest) => manifest.objectKey),
      evidence: {
        party: unit.partyId,
        asset: unit.assetId ?? 'all',
        closedTo: formatInstant(this.#request.closedTo),
        sides: received?.layout.sides,
        questions: this.#questions,
        receivedRows: String(received?.rows ?? 0),
        receivedBytes: String(received?.bytes ?? 0),
        publishedRows: String(rows),
        segments: manifests.length,
        leftOut: { party: String(leftOut.party), asset: String(leftOut.asset), range: String(leftOut.range) },
        ...evidence,
      },
    };
  }
}

function isCuttable(part: ReceivedPart): part is ClosedPart {
  return !part.open && part.to !== undefined && part.spooled !== undefined;
}
