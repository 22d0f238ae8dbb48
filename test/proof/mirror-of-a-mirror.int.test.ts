/**
 * A mirror of a mirror ends its night by comparing with what its source states and signs:
 * two real mirrors of a sandbox network, and what stands between them.
 */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  decodeSignerKey,
  encodeSignerKey,
  encodeVerifierKey,
  generateKey,
} from '../../src/proof/signed-note.ts';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import { type FreshDatabase, openFreshDatabase } from '../support/database.ts';
import { forgetProofs } from '../support/mirror-arrange.ts';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';
import { type SourceInBetween, standBetween } from './source-in-between.ts';

const stack = new AsyncDisposableStack();
let sourceDatabase: FreshDatabase;
let source: MirrorHome;
let between: SourceInBetween;
let mirror: MirrorHome;
let key: string;
/** With the most entries. */
let party: string;

beforeAll(async () => {
  const sandbox = stack.use(
    await startSandbox({ parties: 40, entriesMean: 60, rateLimit: 'none' }),
  );
  sourceDatabase = stack.use(await openFreshDatabase());
  source = stack.use(
    await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: sourceDatabase.url,
    }),
  );
  await source.json(['nightly']);
  key = await keyOf(source);
  party = await busiestPartyOf(source);
  const server = source.start(['serve'], { API_PORT: '0' });
  const [, port] = await waitFor(
    () => /127\.0\.0\.1:(\d+)/.exec(server.stderr + server.stdout),
    { what: 'the API of the source' },
  );
  between = stack.use(await standBetween(`http://127.0.0.1:${port}`));
  mirror = await openMirror();
});
afterAll(() => stack[Symbol.asyncDispose]());
afterEach(() => {
  between.change = undefined;
});

describe('a night whose source serves statements', () => {
  test('ends with one request more, and says that both hold the same, proven', async () => {
    const asked = await nightOf(mirror);
    expect(asked.verdict).toBe('complete');
    expect(asked.sourceProof).toMatchObject({
      isSame: true,
      publicKey: key,
      night: 0,
      height: expect.stringMatching(/^\d+$/) as string,
      says: expect.stringMatching(
        /^the same as ledger-mirror\/\S+ as of height \d+, proven$/,
      ) as string,
    });
    expect(asked.proofRequests).toEqual(['/mirror/proof/latest?from=0']);
  });

  test('proves the next time that the log of the source only grew', async () => {
    await source.json(['nightly']);
    const asked = await nightOf(mirror);
    expect(asked.sourceProof).toMatchObject({ isSame: true, night: 1 });
    expect(asked.proofRequests).toEqual(['/mirror/proof/latest?from=1']);
  });

  test('compares the configured parties alone if the mirror holds no others', async () => {
    const few = await openMirror({ NIGHTLY_PARTIES: party });
    const asked = await nightOf(few);
    expect(asked.sourceProof).toMatchObject({
      isSame: true,
      says: expect.stringContaining('in the configured parties') as string,
    });
    // The statement, its top page, and one page below it.
    expect(asked.proofRequests.length).toBeLessThanOrEqual(3);
  });

  test('names a ledger that differs, asks for it again, and is whole if it is right then', async () => {
    const other = await openMirror();
    let isLost = false;
    between.change = (path, body) => {
      if (isLost || !isExportOf(path, party)) return undefined;
      isLost = true;
      return withoutLastRow(body);
    };
    const asked = await nightOf(other);
    expect(isLost).toBe(true);
    expect(asked.sourceProof).toMatchObject({
      isSame: true,
      askedAgain: 1,
      repaired: [party],
    });
    const compared = await source.run([
      'compare',
      source.dataDir,
      other.dataDir,
    ]);
    expect(compared.code).toBe(0);
  });

  test('doubts a ledger that differs again until both agree', async () => {
    const other = await openMirror();
    between.change = (path, body) =>
      isExportOf(path, party) ? withoutLastRow(body) : undefined;
    const asked = await nightOf(other);
    expect(asked.verdict).toBe('suspicious');
    expect(asked.sourceProof).toMatchObject({
      isSame: false,
      says: expect.stringMatching(/^not the same as /) as string,
      ledgers: [{ party, months: [{ month: '2023-05' }] }],
    });
    const doubted = await other.json(['status']);
    expect(doubted.document).toMatchObject({
      complete: false,
      ledgerDoubts: [{ code: 'PROOF_SOURCE_DIFFERS' }],
    });
    const { stdout } = await other.run(['status']);
    expect(stdout).toContain('ledgers are in doubt');
    expect(stdout).toContain(party);

    between.change = undefined;
    const healed = await nightOf(other);
    expect(healed.sourceProof).toMatchObject({ isSame: true });
    const agreed = await other.json(['status']);
    expect(agreed.document).toMatchObject({
      complete: true,
      ledgerDoubts: [],
    });
  });
});

describe('the key of the source', () => {
  test('SOURCE_PROOF_KEY is believed and no other', async () => {
    const another = encodeVerifierKey(generateKey('another'));
    const wrong = await nightOf(mirror, { SOURCE_PROOF_KEY: another });
    expect(wrong.verdict).toBe('suspicious');
    expect(wrong.sourceProof).toMatchObject({ code: 'PROOF_SOURCE_KEY' });
    const right = await nightOf(mirror, { SOURCE_PROOF_KEY: key });
    expect(right.verdict).toBe('complete');
    expect(right.sourceProof).toMatchObject({ isSame: true });
  });

  test('a statement that another key signed is not believed, and names both keys', async () => {
    const another = generateKey(key.split('+')[0] ?? '');
    between.change = (path, body) =>
      path.startsWith('/mirror/proof/latest')
        ? claimKey(body, encodeVerifierKey(another))
        : undefined;
    const asked = await nightOf(mirror);
    expect(asked.verdict).toBe('suspicious');
    expect(asked.sourceProof).toMatchObject({
      code: 'PROOF_SOURCE_KEY',
      problem: expect.stringContaining(key) as string,
    });
  });

  test('a log that was begun anew with the same key is a fork', async () => {
    await nightOf(mirror);
    const signer = (
      await readFile(join(source.dataDir, 'proof.key'), 'utf8')
    ).trim();
    await rm(join(source.objectsDir, 'proof'), { recursive: true });
    await forgetProofs(sourceDatabase.pool);
    await source.json(['nightly'], { PROOF_KEY: signer });
    const asked = await nightOf(mirror);
    expect(asked.verdict).toBe('suspicious');
    expect(asked.sourceProof).toMatchObject({ code: 'PROOF_SOURCE_FORKED' });
  });

  test('a new key is believed when it is set', async () => {
    const fresh = generateKey('mirror.example/anew');
    await rm(join(source.objectsDir, 'proof'), { recursive: true });
    await rm(join(source.dataDir, 'proof.key'), { force: true });
    await forgetProofs(sourceDatabase.pool);
    await source.json(['nightly'], { PROOF_KEY: encodeSignerKey(fresh) });
    const refused = await nightOf(mirror);
    expect(refused.sourceProof).toMatchObject({ code: 'PROOF_SOURCE_KEY' });
    const publicKey = encodeVerifierKey(fresh);
    const set = await nightOf(mirror, { SOURCE_PROOF_KEY: publicKey });
    expect(set.sourceProof).toMatchObject({ isSame: true, publicKey });
    // It was seen now: the setting may go.
    const kept = await nightOf(mirror);
    expect(kept.sourceProof).toMatchObject({ isSame: true, publicKey });
  });
});

describe('a source that serves no statements', () => {
  test.each([
    ['404', undefined],
    ['a page for people', '<!doctype html><title>Hello</title>'],
  ])('costs one request, and says nothing: %s', async (_, page) => {
    const sandbox = await startSandbox({ parties: 5, rateLimit: 'none' });
    await using plain = await standBetween(sandbox.url);
    if (page !== undefined)
      plain.change = (path) =>
        path.startsWith('/mirror/') ? Buffer.from(page) : undefined;
    await using database = await openFreshDatabase();
    await using only = await openHome({
      SOURCE_URL: plain.url,
      DATABASE_URL: database.url,
    });
    const { document } = await only.json(['nightly']);
    await sandbox.stop();
    expect(document.verdict).toBe('complete');
    expect(document.evidence).not.toHaveProperty('sourceProof');
    expect(plain.asked.filter((path) => path.startsWith('/mirror/'))).toEqual([
      '/mirror/proof/latest?from=0',
    ]);
  });

  test('is named if it has served some before', async () => {
    between.change = (path) =>
      path.startsWith('/mirror/') ? Buffer.from('gone') : undefined;
    const asked = await nightOf(mirror);
    expect(asked.verdict).toBe('complete');
    expect(asked.sourceProof).toMatchObject({ code: 'PROOF_SOURCE_SILENT' });
    const pinned = await nightOf(mirror, {
      SOURCE_PROOF_KEY: encodeVerifierKey(generateKey('mine')),
    });
    expect(pinned.verdict).toBe('incomplete');
  });
});

async function openMirror(
  settings: Readonly<Record<string, string>> = {},
): Promise<MirrorHome> {
  const database = stack.use(await openFreshDatabase());
  return stack.use(
    await openHome({
      SOURCE_URL: between.url,
      DATABASE_URL: database.url,
      ...settings,
    }),
  );
}

/** A night, and what it asked of the source's log. */
async function nightOf(
  home: MirrorHome,
  settings: Readonly<Record<string, string>> = {},
) {
  between.asked.length = 0;
  const { document } = await home.json(['nightly'], settings);
  return {
    verdict: document.verdict,
    sourceProof: document.evidence?.['sourceProof'],
    proofRequests: between.asked.filter((path) => path.startsWith('/mirror/')),
  };
}

async function keyOf(home: MirrorHome): Promise<string> {
  const signer = await readFile(join(home.dataDir, 'proof.key'), 'utf8');
  return encodeVerifierKey(decodeSignerKey(signer));
}

async function busiestPartyOf(home: MirrorHome): Promise<string> {
  const { document } = await home.json([
    'query',
    'select party_id from entries group by 1 order by count(*) desc limit 1',
  ]);
  const { rows } = document as unknown as {
    readonly rows: readonly { readonly party_id: string }[];
  };
  return rows[0]?.party_id ?? '';
}

function isExportOf(path: string, partyId: string): boolean {
  return path.includes('/ledgerentry/export') && path.includes(partyId);
}

function withoutLastRow(csv: Buffer): Buffer {
  const end = csv.lastIndexOf('\n', csv.length - 2);
  return end <= csv.indexOf('\n') ? csv : csv.subarray(0, end + 1);
}

/** The answer with another key in it, and everything else as it was. */
function claimKey(answer: Buffer, publicKey: string): Buffer {
  const text = answer.toString('utf8');
  const changed = text.replace(/^extra (.*)$/m, (_, extra: string) => {
    const told = JSON.parse(
      Buffer.from(extra, 'base64').toString('utf8'),
    ) as object;
    const json = JSON.stringify({ ...told, key: publicKey });
    return `extra ${Buffer.from(json).toString('base64')}`;
  });
  return Buffer.from(changed);
}
