/** What users read about commands, settings and exit codes is what the program does. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { EXIT_CODES } from '../../src/cli/program.ts';
import { ADVICE } from '../../src/errors/advice.generated.ts';
import { readAdvice } from '../../scripts/advice.ts';
import { glossaryModule } from '../../scripts/glossary.ts';
import { RUN_OUTPUT_SCHEMA } from '../../scripts/run-schema.ts';
import { helpOf } from '../support/printed.ts';
import { SETTINGS } from '../../src/config/settings.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const README = readFileSync(resolve(ROOT, 'README.md'), 'utf8');
/** As the contract with users fixes them. */
const COMMANDS = [
  'demo',
  'up',
  'worker',
  'serve',
  'sync',
  'export',
  'nightly',
  'load',
  'verify',
  'prove',
  'check-proof',
  'compare',
  'lake',
  'query',
  'status',
  'cancel',
  'runs',
  'doctor',
  'notify',
  'migrate',
  'config',
  'logs',
  'completion',
  'sandbox',
];

function readPage(name: string): string {
  return readFileSync(resolve(ROOT, 'docs', name), 'utf8');
}

/** The rows of the table of a page with this first header, each as its cells. */
function tableOf(page: string, header: string): string[][] {
  const lines = readPage(page).split('\n');
  const start = lines.findIndex((line) => line.startsWith(`| ${header}`));
  const rows = lines.slice(start + 2);
  const end = rows.findIndex((line) => !line.startsWith('|'));
  return rows.slice(0, end === -1 ? undefined : end).map((line) =>
    line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

let help = '';
beforeAll(async () => {
  help = await helpOf();
});

describe('--help', () => {
  test.each(SETTINGS.map((setting) => [setting.name, setting] as const))(
    'shows %s',
    (name, setting) => {
      const lines = help.split('\n');
      const at = lines.findIndex(
        (line) =>
          line.trim().startsWith(`${name} `) && line.includes(setting.help),
      );
      expect(at).toBeGreaterThan(0);
      const below = lines[at + 1] ?? '';
      expect(below).toContain(setting.accepted);
      expect(below).toContain(
        setting.fallback === undefined ? '' : `(default ${setting.fallback})`,
      );
    },
  );

  test('shows no setting that does not exist', () => {
    const section = help.split('Settings (')[1]?.split('\nSecrets')[0] ?? '';
    const named = [...section.matchAll(/^ {2}([A-Z][A-Z_]+) /gm)].map(
      ([, name]) => name,
    );
    expect(named).toEqual(SETTINGS.map((setting) => setting.name));
  });

  test('lists every command, and no other', () => {
    const section = help.split('Commands:\n')[1]?.split('\n\n')[0] ?? '';
    const named = [...section.matchAll(/^ {2}([a-z]+(?:-[a-z]+)*)/gm)]
      .map(([, name]) => name)
      .filter((name) => name !== 'help');
    expect(new Set(named)).toEqual(new Set(COMMANDS));
  });

  test.each(EXIT_CODES)('tells exit code %i', (code, meaning) => {
    expect(help).toMatch(new RegExp(String.raw`^  ${code} +${meaning}$`, 'm'));
  });
});

describe('what the console explains', () => {
  test('is the words of docs/glossary.md', () => {
    const file = 'src/api/console/page/common/glossary.generated.js';
    const module = readFileSync(resolve(ROOT, file), 'utf8');
    expect(module, 'run `npm run docs`').toBe(
      glossaryModule(readPage('glossary.md')),
    );
    for (const word of ['complete', 'export limit', 'open segment'])
      expect(module).toContain(`["${word}", "`);
    expect(module).not.toMatch(/\]\(|"slot"/);
  });
});

describe('what runs ID says to do about an error code', () => {
  test('is what docs/errors.md says', () => {
    expect(ADVICE, 'run `npm run docs`').toEqual(
      readAdvice(readPage('errors.md')),
    );
    expect(ADVICE['SOURCE_DRIP']?.todo).toBe(ADVICE['SOURCE_STALLED']?.todo);
    expect(JSON.stringify(ADVICE)).not.toMatch(
      /\]\(|`|"As above|"The same[.,]/,
    );
  });
});

describe('the schema of a run that ships', () => {
  test('is the one that the read API and --json answer by', () => {
    expect(JSON.parse(readPage('run.schema.json'))).toEqual(
      JSON.parse(JSON.stringify(RUN_OUTPUT_SCHEMA)),
    );
  });
});

describe('the docs', () => {
  test.each(['traps.md', 'list-sync.md', 'operations.md', 'security.md'])(
    '%s names tests that are there',
    (name) => {
      const missing: string[] = [];
      const lines = readFileSync(resolve(ROOT, 'docs', name), 'utf8').split(
        '\n',
      );
      for (const line of lines.filter((row) => row.startsWith('|'))) {
        let file: string | undefined;
        for (const [, path, title] of (line.split('|').at(-2) ?? '').matchAll(
          /`(test\/[^`]+\.ts)`|"([^"]+)"/g,
        )) {
          if (path !== undefined) file = resolve(ROOT, path);
          const isThere =
            file !== undefined &&
            existsSync(file) &&
            (title === undefined || readFileSync(file, 'utf8').includes(title));
          if (!isThere) missing.push(`${path ?? file}: ${title ?? 'the file'}`);
        }
      }
      expect(missing).toEqual([]);
    },
  );

  test('have the table of settings, exactly', () => {
    const expected = SETTINGS.map((setting) => [
      `\`${setting.name}\`${setting.secret === true ? ' (secret)' : ''}`,
      setting.fallback === undefined ? '–' : `\`${setting.fallback}\``,
      setting.accepted,
      setting.help,
    ]);
    expect(tableOf('configuration.md', 'Setting')).toEqual(expected);
  });

  test('explain every command, and no other', () => {
    const named = tableOf('commands.md', 'Command').map(
      ([cell]) => /^`([a-z]+(?:-[a-z]+)*)/.exec(cell ?? '')?.[1],
    );
    expect(new Set(named)).toEqual(new Set(COMMANDS));
  });

  test.each(COMMANDS.filter((name) => name !== 'sandbox'))(
    'explain the options of %s, and no other',
    async (name) => {
      const shared = ['--json', '--quiet', '--help', '--version'];
      const taken = (await helpOf(name)).match(/--[a-z-]+(?=[ \n])/g) ?? [];
      const rows = tableOf('commands.md', 'Command').filter(([cell]) =>
        cell?.startsWith(`\`${name}`),
      );
      const told = rows.join(' ').match(/--[a-z-]+/g) ?? [];
      expect(new Set(told)).toEqual(
        new Set(taken.filter((flag) => !shared.includes(flag))),
      );
    },
  );

  test('explain every exit code, and no other', () => {
    const codes = tableOf('commands.md', 'Exit code').map(([code]) =>
      Number(code),
    );
    expect(codes).toEqual(EXIT_CODES.map(([code]) => code));
  });

  test('README is short enough to be read', () => {
    expect(README.split('\n').length).toBeLessThan(200);
  });

  test('name only npm scripts that there are', () => {
    const { scripts } = JSON.parse(
      readFileSync(resolve(ROOT, 'package.json'), 'utf8'),
    ) as {
      scripts: Record<string, string>;
    };
    const pages = [
      README,
      ...readdirSync(resolve(ROOT, 'docs'))
        .filter((name) => name.endsWith('.md'))
        .map(readPage),
    ];
    const named = [...pages.join('\n').matchAll(/npm run ([\w:]+)/g)].map(
      ([, name]) => name ?? '',
    );
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((name) => scripts[name] === undefined)).toEqual([]);
  });
});

describe('files to start from', () => {
  const known = new Set(SETTINGS.map((setting) => setting.name));

  test('.env.example names only settings', () => {
    const text = readFileSync(resolve(ROOT, '.env.example'), 'utf8');
    const [settings = ''] = text.split('# docker compose alone reads these');
    const named = [...settings.matchAll(/^#?([A-Z][A-Z_]+)=/gm)].map(
      ([, name]) => name ?? '',
    );
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });
});
