/**
 * Finds phrases that make a reader stop, in comments, docs and messages, using the
 * patterns in docs/style.md. It knows only a few patterns that are certainly wrong; a
 * reviewer judges the rest. `node scripts/check-prose.ts` prints `file:line: phrase
 * (advice)`.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseSync } from 'oxc-parser';

interface Pattern {
  readonly phrase: RegExp;
  readonly advice: string;
}

/**
 * Maximum number of phrases allowed: those left from before this check existed. Lower the
 * number with every edit; never raise it.
 */
const FOUND_MAX = 0;

/** A line of prose and its location. */
interface ProseLine {
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

const ROOT = resolve(import.meta.dirname, '..');

const PATTERNS: readonly Pattern[] = [
  {
    phrase: /^(?:Of|By|With|For) (?:which|whom|whose|what)\b/,
    advice: 'name the subject first',
  },
  {
    phrase: /^Of (?:a|an|the|what|them|it)\b/,
    advice: 'name the subject first',
  },
  { phrase: /^(?:Whose|Whom)\b/, advice: 'name the subject first' },
  {
    phrase: /\b[Ww]ho(?:m|so)?ever\b/,
    advice: 'say who: a caller, a reader, a worker',
  },
  {
    phrase: /\bwhere there (?:is|are) (?:no|none)\b/,
    advice: '"if there is no …"',
  },
  {
    phrase:
      /(?<!\bthere )\b(?:is|are) no (?:id|page|time|row|JSON|error|list|hex|checkpoint)\b/,
    advice: '"is not a …"',
  },
  { phrase: /\bis told (?:of|by|apart)\b/, advice: 'use the technical verb' },
  {
    phrase: /\btells of\b/,
    advice: 'use the technical verb: reports, describes',
  },
  { phrase: /@returns \S+ where\b/, advice: '"if", "when"' },
  { phrase: /@throws \S+ where\b/, advice: '"if", "when"' },
];

const CODE = /\.(?:ts|js|mjs)$/;
const SOURCES = [
  'src',
  'jobs',
  'migrations',
  'test',
  'bench',
  'scripts',
  'bin',
  'docs',
  '*.md',
];
/** These pages quote phrases to avoid, or describe decisions in other people's words. */
const QUOTING = new Set(['docs/style.md', 'scripts/check-prose.ts']);

function trackedFiles(): readonly string[] {
  const listed = execFileSync('git', ['ls-files', '--', ...SOURCES], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return listed
    .split('\n')
    .filter(
      (file) => (CODE.test(file) || file.endsWith('.md')) && !QUOTING.has(file),
    );
}

/** Returns the comment lines of a source file, without comment marks. */
function commentLines(file: string, source: string): ProseLine[] {
  return parseSync(file, source).comments.flatMap(({ value, start }) => {
    const firstLine = source.slice(0, start).split('\n').length;
    return value.split('\n').map((text, index) => ({
      file,
      line: firstLine + index,
      text: text.replace(/^[\s*]+/, ''),
    }));
  });
}

/** Returns the lines of a page, without code blocks. */
function pageLines(file: string, source: string): ProseLine[] {
  let isCode = false;
  const lines: ProseLine[] = [];
  for (const [index, text] of source.split('\n').entries()) {
    if (/^\s*```/.test(text)) isCode = !isCode;
    else if (!isCode) lines.push({ file, line: index + 1, text: text.trim() });
  }
  return lines;
}

function proseOf(file: string): readonly ProseLine[] {
  const source = readFileSync(join(ROOT, file), 'utf8');
  return CODE.test(file) ? commentLines(file, source) : pageLines(file, source);
}

export function findProse({ file, line, text }: ProseLine): string[] {
  return PATTERNS.flatMap(({ phrase, advice }) => {
    const found = phrase.exec(text)?.[0];
    return found === undefined
      ? []
      : [`${file}:${line}: "${found}" (${advice})`];
  });
}

if (import.meta.main) {
  const problems = trackedFiles().flatMap((file) =>
    proseOf(file).flatMap(findProse),
  );
  for (const problem of problems) process.stdout.write(`${problem}\n`);
  process.stdout.write(
    `${problems.length} found, at most ${FOUND_MAX} allowed\n`,
  );
  process.exitCode = problems.length > FOUND_MAX ? 1 : 0;
}
