/** Notices of runs, posted to a receiver: which, once each, and again after a refusal. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeEach, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config/environment.ts';
import { PermanentError, RetryableError } from '../../src/errors/errors.ts';
import {
  type Notice,
  openPoster,
  sendNotices,
} from '../../src/runs/notices.ts';
import { readUntoldRuns } from '../../src/runs/store/run-facts.ts';
import { freshDatabase } from '../support/database.ts';
import { emptyRuns } from '../support/mirror-arrange.ts';
import { openJobWorld } from './stages-double.ts';
import { numberedNames } from '../support/numbered-names.ts';

const database = await freshDatabase({ isMigrated: true });
const nextName = numberedNames('notices');
const openWorld = (): ReturnType<typeof openJobWorld> =>
  openJobWorld(database.url, nextName(), {});

beforeEach(() => emptyRuns(database.pool));

interface Posted {
  readonly id: string;
  readonly type: string;
  readonly runId: string;
  readonly kind: string;
  readonly verdict: string | null;
}

/** Refuses the first `refusals` posts, and keeps the others. */
async function openReceiver(
  refusals: number,
): Promise<{ posted: Posted[]; url: URL } & AsyncDisposable> {
  const posted: Posted[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      refusals -= 1;
      if (refusals < 0)
        posted.push({ ...JSON.parse(body), id: request.headers['webhook-id'] });
      response.writeHead(refusals < 0 ? 204 : 503).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    posted,
    url: new URL(
      `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    ),
    [Symbol.asyncDispose]: async () => {
      server.close();
    },
  };
}

describe('the receiver of notices', () => {
  test('is told of the start and the end of a run of each kind, once each, and again after a refusal', async () => {
    // Three tries a notice: the first notice of the first call is refused.
    await using receiver = await openReceiver(3);
    await using world = await openWorld();
    const { runs } = world.deps;
    const deps = {
      ...world.deps,
      notices: {
        post: openPoster(receiver.url, { version: 'test' }),
        wanted: ['all'],
      },
    };
    const kinds = ['nightly', 'sync', 'export', 'load', 'verify'] as const;
    const ids: string[] = [];
    for (const kind of kinds) {
      const { runId } = await runs.create({
        kind,
        subject: kind === 'sync' ? 'parties' : `of ${kind}`,
      });
      ids.push(runId);
      await runs.start(runId);
    }
    await sendNotices(deps);
    await sendNotices(deps);
    await sendNotices(deps);
    // The refused notice comes after the others, which it does not hold up.
    const order = [1, 2, 3, 4, 0];
    expect(
      receiver.posted.map(({ id, type, kind }) => [id, type, kind]),
    ).toEqual(
      order.map((index) => [
        `run_${ids[index]}_started`,
        'run.started',
        kinds[index],
      ]),
    );
    receiver.posted.length = 0;
    for (const id of ids) await runs.finish(id, 'complete', {});
    await sendNotices(deps);
    await sendNotices(deps);
    expect(receiver.posted.map(({ id, type }) => [id, type])).toEqual(
      order.map((index) => [`run_${ids[index]}`, 'run.finished']),
    );
  });

  test('is told of a failure, of the recovery after it, and of a cancelled run; not of the parts of a run', async () => {
    await using receiver = await openReceiver(0);
    await using world = await openWorld();
    const { runs } = world.deps;
    const deps = {
      ...world.deps,
      notices: {
        post: openPoster(receiver.url, { version: 'test' }),
        wanted: ['all'],
      },
    };
    for (const verdict of ['incomplete', 'complete', 'complete'] as const) {
      const { runId } = await runs.create({
        kind: 'nightly',
        subject: verdict,
      });
      await runs.start(runId);
      const part = await runs.create({
        kind: 'sync',
        subject: 'parties',
        parentRunId: runId,
      });
      await runs.start(part.runId);
      await runs.finish(runId, verdict, { exports: { failed: 1 } });
      await runs.finish(part.runId, verdict, {});
    }
    const cancelled = await runs.create({ kind: 'load', subject: 'x' });
    await runs.start(cancelled.runId);
    await runs.markCancelled(cancelled.runId);
    await sendNotices(deps);
    expect(receiver.posted.map(({ type, verdict }) => [type, verdict])).toEqual(
      [
        ['run.started', null],
        ['run.failed', 'incomplete'],
        ['run.started', null],
        ['run.recovered', 'complete'],
        ['run.started', null],
        ['run.finished', 'complete'],
        ['run.started', null],
        ['run.cancelled', null],
      ],
    );
  });

  test.each([
    [
      'a status that may pass',
      new RetryableError('503', { code: 'NOTIFY_FAILED' }),
      3,
    ],
    [
      'a status of this very notice',
      new PermanentError('413', { code: 'NOTIFY_REFUSED' }),
      1,
    ],
  ])(
    'gets the failure of a night although it refuses the notice before with %s',
    async (_, refusal, tries) => {
      await using world = await openWorld();
      const { runs } = world.deps;
      const delivered: string[] = [];
      let refused = 0;
      const first = await runs.create({ kind: 'nightly', subject: 'first' });
      const post = async ({ id, type }: Notice): Promise<void> => {
        if (id === `run_${first.runId}`) {
          refused += 1;
          throw refusal;
        }
        delivered.push(type);
      };
      const second = await runs.create({ kind: 'nightly', subject: 'second' });
      for (const { runId } of [first, second]) {
        await runs.start(runId);
        await runs.finish(runId, 'incomplete', {});
      }

      const deps = { ...world.deps, notices: { post, wanted: ['all'] } };
      for (let call = 0; call < 3; call += 1) await sendNotices(deps);
      expect(delivered).toEqual(['run.started', 'run.started', 'run.failed']);
      expect(refused).toBe(tries);
    },
  );

  test('is told only of what is wanted, by kind or by what happened, and not asked about the rest again', async () => {
    await using receiver = await openReceiver(0);
    await using world = await openWorld();
    const { runs } = world.deps;
    const { notifyOn: wanted } = readConfig({ env: {}, cwd: '/' });
    const deps = {
      ...world.deps,
      notices: { post: openPoster(receiver.url, { version: 'test' }), wanted },
    };
    for (const [kind, verdict] of [
      ['export', 'complete'],
      ['export', 'failed'],
      ['nightly', 'complete'],
    ] as const) {
      const { runId } = await runs.create({ kind, subject: verdict });
      await runs.start(runId);
      await runs.finish(runId, verdict, { exported: { rows: 12 } });
    }
    await sendNotices(deps);
    expect(receiver.posted).toMatchObject([
      {
        type: 'run.failed',
        kind: 'export',
        status: 'failed',
        evidence: { exported: { rows: '12' } },
      },
      { type: 'run.started', kind: 'nightly', status: 'running' },
      { type: 'run.finished', kind: 'nightly', status: 'succeeded' },
    ]);
    await expect(readUntoldRuns(world.deps.db, 10)).resolves.toEqual([]);
  });

  test('does not hinder that an order joins the open run that it was told of', async () => {
    await using world = await openWorld();
    const { runs } = world.deps;
    const order = {
      kind: 'export',
      subject: '1'.repeat(64),
      params: { load: true },
    } as const;
    const { run } = await runs.order(order);
    await runs.keep(run.runId, { told: 'started' });
    expect(await runs.order(order)).toMatchObject({
      found: 'open',
      run: { runId: run.runId },
    });
  });
});
