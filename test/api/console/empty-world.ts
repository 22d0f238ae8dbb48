/** A mirror before its first night, and what a look at its source shows. */
import type { FirstRunPreview } from '../../../src/runs/nightly/nightly-preview.ts';
import { EMPTY_FACTS } from '../mirror.ts';
import { type Facts, quiet } from './fixed-console.ts';

export const LOOK: FirstRunPreview = {
  lists: [
    {
      list: 'parties',
      rows: { least: 12_000, most: 15_000 },
      requests: { least: 26, most: 32 },
    },
    {
      list: 'checkpoints',
      rows: { least: 900, most: 900 },
      requests: { least: 2, most: 2 },
    },
  ],
  exports: { least: 12_000, most: 15_000 },
  networkRequests: 1,
  requests: { least: 12_029, most: 15_035 },
  seconds: { least: 1_203, most: 1_504 },
  listBytes: { least: 2_097_152, most: null },
};

export function emptyFacts(): Facts {
  return {
    live: quiet(),
    status: EMPTY_FACTS,
    runs: [],
    settings: [
      setting('SOURCE_URL', 'https://ledger.example.com/'),
      setting('NIGHTLY_PARTIES', 'all'),
      setting('SCHEDULE', '0 2 * * *'),
      setting('SCHEDULE_TZ', 'Europe/Zurich'),
      setting('OBJECT_STORE_URL', 's3://bucket/prefix'),
    ],
  };
}

function setting(name: string, value: string) {
  return { name, value, isSecret: false, origin: '.env', help: '' };
}
