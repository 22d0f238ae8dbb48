/**
 * `node scripts/check-subjects.mjs BASE`: checks that every commit since BASE has a
 * subject of the form `type(scope): outcome` with at most 72 characters. Plain
 * JavaScript, so that CI needs no install.
 */
import { execFileSync } from 'node:child_process';

const SUBJECT =
  /^(?:feat|fix|docs|style|refactor|perf|test|build|ci|chore|revert)(?:\([^)]+\))?!?: \S/;
const CHARACTERS_MAX = 72;

const [base = 'origin/main'] = process.argv.slice(2);
const log = execFileSync(
  'git',
  ['log', '--no-merges', '--format=%h %s', `${base}..HEAD`],
  {
    encoding: 'utf8',
  },
);

const problems = [];
for (const line of log.split('\n').filter(Boolean)) {
  const subject = line.slice(line.indexOf(' ') + 1);
  if (subject.length > CHARACTERS_MAX)
    problems.push(`longer than ${CHARACTERS_MAX}: ${line}`);
  if (!SUBJECT.test(subject))
    problems.push(`not "type(scope): outcome": ${line}`);
}
for (const problem of problems) process.stdout.write(`${problem}\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
