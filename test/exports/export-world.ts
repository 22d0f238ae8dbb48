/**
 * Everything an export needs, real but for the source, and the questions tests ask of the
 * outcome.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { Pool } from 'pg';
import { exportLedger } from '../../src/exports/export-ledger.ts';
import type {
  ExportDeps,
  ExportOutcome,
  ExportRequest,
} from '../../src/exports/export-context.ts';
import { decodeManifest } from '../../src/ledger/manifest.ts';
import {
  compressionOf,
  isManifestKey,
  manifestKey,
  plainStream,
} from '../../src/ledger/object-keys.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { ExportStore } from '../../src/exports/store/export-store.ts';
import { at, clockAt, LedgerDouble, PARTY } from './ledger-double.ts';
import { currentSegments } from '../support/mirror-state.ts';
import {
  emptyLedgers,
  endExportLeases,
  setSourceProfile,
} from '../support/mirror-arrange.ts';

export const signal = new AbortController().signal;

export class World implements AsyncDisposable {
  readonly source = new LedgerDouble();
  readonly objects: ObjectStore;
  readonly repository: ExportStore;
  readonly pool: Pool;
  readonly #warehouse: Warehouse;
  readonly folder: string;

  /** As a second process sees the same world. */
  constructor(url: string, pool: Pool, folder: string) {
    this.folder = folder;
    this.pool = pool;
    this.#warehouse = openWarehouse({ url, onIdleError: () => undefined });
    this.repository = new ExportStore(this.#warehouse.db);
    this.objects = openFileStore(join(folder, 'objects'));
  }

  static async open(database: { url: string; pool: Pool }): Promise<World> {
    await emptyLedgers(database.pool);
    await setSourceProfile(database.pool, {});
    return new World(
      database.url,
      database.pool,
      await mkdtemp(join(tmpdir(), 'ledger-mirror-export-')),
    );
  }

  deps(changes: Partial<ExportDeps> = {}): ExportDeps {
    return {
      source: this.source,
      repository: this.repository,
      objects: this.objects,
      compression: 'zstd',
      segmentBytesMax: 2 ** 28,
      exportLimit: 1,
      waitMs: 120_000,
      ...changes,
    };
  }

  /** @param now the source's time; closed is what lies two minutes before it */
  export(
    now: string,
    request: Partial<ExportRequest> = {},
    changes: Partial<ExportDeps> = {},
    stop = signal,
  ): Promise<ExportOutcome> {
    const asked = {
      partyId: PARTY,
      runId: randomUUID(),
      clock: clockAt(at(now)),
      ...request,
    };
    return exportLedger(asked, this.deps(changes), stop);
  }

  /**
   * All rows of the current segments, sorted: a multiset. Checks every manifest on the
   * way.
   */
  async rows(): Promise<string[]> {
    const segments = await currentSegments(this.pool);
    const all: string[] = [];
    for (const { objectKey: key, columns, rows } of segments) {
      const manifest = JSON.parse(
        await text(await this.objects.read(manifestKey(key), signal)),
      ) as unknown;
      const { objectKey, columns: named } = decodeManifest(manifest, key);
      const csv = await text(
        plainStream(await this.objects.read(key, signal), compressionOf(key)),
      );
      const [header, ...lines] = csv.split('\n');
      if (
        lines.pop() !== '' ||
        header !== columns.join(',') ||
        objectKey !== key
      )
        throw new Error(`broken: ${key}`);
      if (lines.length !== rows || named.join(',') !== header)
        throw new Error(`does not agree: ${key}`);
      all.push(...lines);
    }
    return all.toSorted();
  }

  async coverage(): Promise<string[]> {
    const { rows } = await this.pool.query<{ line: string }>(
      `select format('%s %s %s %s', to_char(c.from_time at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
         to_char(c.to_time at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
         case when c.open then 'open' else 'closed' end, coalesce(s.rows::text, 'empty')) as line
       from mirror.coverage c left join mirror.segments s using (segment_id)
       order by c.from_time`,
    );
    return rows.map(({ line }) => line);
  }

  async keys(): Promise<string[]> {
    const keys: string[] = [];
    for await (const { key } of this.objects.list('', signal)) keys.push(key);
    return keys;
  }

  async objectKeys(): Promise<string[]> {
    return (await this.keys()).filter((key) => !isManifestKey(key));
  }

  async spooled(): Promise<string[]> {
    return readdir(join(this.folder, 'objects', '.spool')).catch(() => []);
  }

  /** A dead worker's leases, as they are once they have run out. */
  async expireLeases(): Promise<void> {
    await endExportLeases(this.pool);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#warehouse[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true });
  }
}
