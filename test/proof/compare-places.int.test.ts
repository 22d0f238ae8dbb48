/**
 * `compare` between every two places that have a log or a statement, and how many reads
 * it needs. The log of one side has one more night, in which one ledger changed.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { openComparedSide } from '../../src/app/proof-places.ts';
import { readConfig } from '../../src/config/environment.ts';
import { compareMirrors } from '../../src/proof/compare.ts';
import { encodeProof, proveLedger } from '../../src/proof/ledger-proof.ts';
import type { ProofFiles } from '../../src/proof/proof-files.ts';
import { addIdleLedgers } from '../support/mirror-arrange.ts';
import { hexId, NEVER_ABORTED } from '../support/samples.ts';
import { filesOf, proofWorld } from './proof-world.ts';

const PARTY_A = hexId('aa');
const world = await proofWorld();

/** The kinds of places, and how their side is written. */
const KINDS = [
  'the address of a mirror',
  'the address of a web server',
  'a store',
  'a data folder',
  'a published folder',
  'a statement',
  'a proof',
] as const;
type Kind = (typeof KINDS)[number];
const HAS_FILES = new Set<Kind>(KINDS.slice(0, 5));

describe('compare', () => {
  test('compares every two kinds of places', async () => {
    await using places = await openPlaces(0, 10);
    for (const left of KINDS) {
      for (const right of KINDS) {
        const same = await places.compare(places.old[left], places.old[right]);
        expect([left, right, same.found]).toMatchObject([
          left,
          right,
          { isSame: true, ledgerCount: 0 },
        ]);
        const { found } = await places.compare(
          places.old[left],
          places.now[right],
        );
        const isNamed = HAS_FILES.has(left) && HAS_FILES.has(right);
        expect({ left, right, ...found }).toMatchObject({
          left,
          right,
          isSame: false,
          ledgerCount: isNamed ? 1 : null,
          ledgers: isNamed ? [{ party: PARTY_A }] : [],
        });
      }
    }
  });

  test('sends two requests to each of two equal mirrors', async () => {
    await using places = await openPlaces(0, 10);
    const mirror = places.old['the address of a mirror'];
    const { requests } = await places.compare(mirror, mirror);
    expect(requests).toBe(4);
  });

  test('needs about as many reads for 1,000 ledgers as for 10, if one differs', async () => {
    const few = await readsFor(0, 10);
    const many = await readsFor(10, 1_000);
    // Each side has one more level of pages, with one page to read, and one more page
    // if the pages of a level end elsewhere.
    expect(many.requests - few.requests).toBeLessThanOrEqual(4);
    expect(many.reads - few.reads).toBeLessThanOrEqual(4);
    expect(few.requests).toBeLessThanOrEqual(12);
  });
});

async function readsFor(from: number, to: number) {
  await using places = await openPlaces(from, to);
  const web = 'the address of a mirror';
  const { requests } = await places.compare(places.old[web], places.now[web]);
  const { reads } = await places.compare(
    places.old['a store'],
    places.now['a store'],
  );
  return { requests, reads };
}

/**
 * Two states of a mirror as all kinds of places, after it has grown from one number of
 * ledgers to another.
 */
async function openPlaces(from: number, to: number) {
  await using made = new AsyncDisposableStack();
  const ids = Array.from({ length: to - from }, (_, index) =>
    sha256(`idle ${from + index}`),
  );
  await addIdleLedgers(world.database.pool, ids);
  const days = from === 0 ? ['01', '02'] : ['03', '04'];
  const states: StoreCopy[] = [];
  for (const day of days) {
    await world.addDay(PARTY_A, `2023-05-${day}`, 1);
    await world.night(String(Number(day) - 1));
    states.push(await copyOfStore(made));
  }
  const [before, after] = states;
  if (before === undefined || after === undefined) throw new Error('no state');

  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    const url = request.url ?? '';
    const [side, path] = url.startsWith('/before/')
      ? [before, url.slice('/before/'.length)]
      : [after, url.slice('/after/'.length)];
    const file = path.replace(/^mirror\//, '').replace(/^web\//, 'proof/');
    readFile(join(side.store, file)).then(
      (content) => response.end(content),
      () => response.writeHead(404).end(),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  made.defer(async () => {
    server.closeAllConnections();
    await once(server.close(), 'close');
  });
  const placesOf = (name: string, side: StoreCopy): Record<Kind, string> => ({
    'the address of a mirror': `http://127.0.0.1:${port}/${name}`,
    'the address of a web server': `http://127.0.0.1:${port}/${name}/web`,
    'a store': pathToFileURL(side.store).href,
    'a data folder': side.dataDir,
    'a published folder': side.published,
    'a statement': side.statement,
    'a proof': side.proof,
  });
  const context = {
    config: readConfig({ env: { DATA_DIR: before.dataDir }, cwd: tmpdir() }),
    signal: NEVER_ABORTED,
  };
  const owned = made.move();
  return {
    old: placesOf('before', before),
    now: placesOf('after', after),
    async compare(left: string, right: string) {
      await using stack = new AsyncDisposableStack();
      const since = requests;
      let reads = 0;
      const counted = (files: ProofFiles | undefined) =>
        files && {
          where: files.where,
          read: (...asked: Parameters<ProofFiles['read']>) => {
            reads += 1;
            return files.read(...asked);
          },
        };
      const one = await openComparedSide(left, context, stack);
      const other = await openComparedSide(right, context, stack);
      const found = await compareMirrors(
        { ...one, files: counted(one.files) },
        { ...other, files: counted(other.files) },
      );
      return { found, reads, requests: requests - since };
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

interface StoreCopy {
  readonly dataDir: string;
  readonly store: string;
  readonly published: string;
  readonly statement: string;
  readonly proof: string;
}

async function copyOfStore(stack: AsyncDisposableStack): Promise<StoreCopy> {
  const dataDir = await mkdtemp(join(tmpdir(), 'ledger-mirror compare '));
  stack.defer(() => rm(dataDir, { recursive: true, force: true }));
  const store = join(dataDir, 'objects');
  await cp(fileURLToPath(world.objects.url), store, { recursive: true });
  const published = join(dataDir, 'what they published');
  await cp(join(store, 'proof'), published, { recursive: true });
  const files = filesOf(world);
  const proven = await proveLedger(files, { party: PARTY_A });
  const statement = join(dataDir, 'statement.json');
  await writeFile(statement, proven.statement);
  const proof = join(dataDir, 'proof.json');
  await writeFile(proof, encodeProof(proven));
  return { dataDir, store, published, statement, proof };
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
