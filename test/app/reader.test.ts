/** What a command that only looks is started with, as Node loads it. */
import { execFileSync } from 'node:child_process';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';

const SOURCES = resolve(import.meta.dirname, '../../src');

function urlOf(file: string): string {
  return pathToFileURL(`${SOURCES}/${file}`).href;
}

/** Every package that is in memory once the command has what opens its database. */
function loaded(command: string): Set<string> {
  const script = `import { registerHooks } from 'node:module';
    const found = new Set();
    registerHooks({ load: (url, context, next) => {
      found.add(url.split('/node_modules/').at(1)?.split('/').slice(0, url.includes('/node_modules/@') ? 2 : 1).join('/'));
      return next(url, context);
    } });
    await import('${urlOf(`cli/commands/${command}.ts`)}');
    await import('${urlOf('app/base.ts')}');
    console.log(JSON.stringify([...found]));`;
  const text = execFileSync(
    process.execPath,
    ['--input-type=module', '--eval', script],
    {
      encoding: 'utf8',
    },
  );
  return new Set(JSON.parse(text) as string[]);
}

test.each(['status', 'runs'])(
  '%s loads neither queues, source, stores, lake, schemas nor ids',
  (command) => {
    const packages = loaded(command);
    expect(packages).toContain('pg');
    const heavy = [
      'bullmq',
      'ioredis',
      'undici',
      '@aws-sdk/client-s3',
      '@duckdb/node-api',
      'prom-client',
      'fastify',
      'zod',
      'uuid',
    ];
    expect(heavy.filter((name) => packages.has(name))).toEqual([]);
  },
);
