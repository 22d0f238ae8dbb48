import { describe, expect, test } from 'vitest';
import { PermanentError } from '../../src/errors/errors.ts';
import { createLog, type Log, type LogLevel } from '../../src/logging/log.ts';
import {
  hideSecrets,
  rememberSecrets,
} from '../../src/secrets/secret-masking.ts';

function capture(level: LogLevel = 'info'): {
  log: Log;
  lines: Record<string, unknown>[];
  text: () => string;
} {
  const written: string[] = [];
  const lines: Record<string, unknown>[] = [];
  const destination = {
    write(line: string): void {
      written.push(line);
      lines.push(JSON.parse(line) as Record<string, unknown>);
    },
  };
  return {
    log: createLog(level, destination),
    lines,
    text: () => written.join(''),
  };
}

describe('createLog', () => {
  test('writes a constant message with its values as fields', () => {
    const { log, lines } = capture();
    log.info(
      { runId: 'r1', rows: 12_345_678_901_234_567_890n },
      'Page committed',
    );
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'info',
        msg: 'Page committed',
        runId: 'r1',
        rows: '12345678901234567890',
      }),
    ]);
    expect(lines[0]?.['time']).toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
  });

  test('keeps to its level', () => {
    const { log, lines } = capture('warn');
    log.info('hidden');
    log.debug({ a: 1 }, 'hidden');
    log.warn('shown');
    expect(lines.map((line) => line['msg'])).toEqual(['shown']);
  });

  test('shows code, meta and every cause of an error', () => {
    const { log, lines } = capture();
    const cause = Object.assign(new Error('connect refused'), {
      code: 'ECONNREFUSED',
    });
    const err = new PermanentError('Cannot load segment: no object', {
      code: 'OBJECT_MISSING',
      meta: { bytes: 7n },
      cause,
    });
    log.error({ err }, 'Load failed');
    expect(lines[0]?.['err']).toMatchObject({
      type: 'PermanentError',
      code: 'OBJECT_MISSING',
      meta: { bytes: '7' },
      cause: { code: 'ECONNREFUSED', message: 'connect refused' },
    });
  });

  test('survives an error that causes itself, and deep or huge values', () => {
    const { log, text } = capture();
    const err = new Error('loop');
    err.cause = err;
    const deep: Record<string, unknown> = {};
    deep['again'] = deep;
    log.error(
      { err, deep, list: Array.from({ length: 10_000 }, () => 'x'.repeat(10)) },
      'Odd values',
    );
    expect(text().length).toBeLessThan(50_000);
    expect(text()).toContain('[9900 more]');
  });

  test.each([
    ['a header', { headers: { Authorization: 'Bearer topsecret' } }],
    ['a token', { apiToken: 'topsecret' }],
    ['a password in a URL', { url: 'postgres://me:topsecret@db/x' }],
    ['a URL object', { url: new URL('redis://:topsecret@cache:6379') }],
    ['a parameter', { url: 'https://x.y/p?api_key=topsecret&page=1' }],
    [
      'an error message',
      { err: new Error('no answer from https://u:topsecret@host/') },
    ],
    ['an AWS key', { env: { AWS_SECRET_ACCESS_KEY: 'topsecret' } }],
    ['text after Bearer', { said: 'sent Bearer topsecret' }],
  ])('hides %s', (_, fields) => {
    const { log, text } = capture();
    log.info(fields, 'Asked');
    expect(text()).not.toContain('topsecret');
    expect(text()).toContain('[secret]');
  });

  test('hides the configured secrets wherever they turn up', () => {
    rememberSecrets(['pa"ss\\word']);
    const { log, text } = capture();
    log.info({ any: 'the word pa"ss\\word is here' }, 'said pa"ss\\word');
    expect(text()).not.toContain('ss\\\\word');
    expect(text().match(/\[secret\]/g)).toHaveLength(2);
  });

  test('leaves ordinary values alone', () => {
    const fields = {
      url: 'https://api.example/v2/parties?pagination.after=abc',
      unit: 'party=ab',
      mail: 'a@b',
    };
    const { log, lines } = capture();
    log.info(fields, 'Asked');
    expect(lines[0]).toMatchObject(fields);
    expect(hideSecrets('see https://a.b/c and me@x.y')).toBe(
      'see https://a.b/c and me@x.y',
    );
  });
});
