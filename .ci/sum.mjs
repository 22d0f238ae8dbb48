/**
 * The end of a CI run: what failed, each with the beginning of its message, and the sum of all parts as the last
 * line. Plain JavaScript for whichever Node is there. `sum.mjs <folder of results> <1 where a part ended badly>`
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

const [, , folder, broken] = process.argv;
const MESSAGE_LINES = 6;
const LINE_CHARS = 700;
/** The others by name alone, and not all: more than a screen of failures is one cause, seldom many. */
const SHOWN_MAX = 6;
const NAMED_MAX = 16;

let passed = 0;
let failed = 0;
/** @type {string[]} */
const told = [];

for (const part of [
  'tests',
  'faults',
  'browser',
  'stores',
  'tools',
  'surroundings',
]) {
  const path = join(folder, `${part}.json`);
  if (!existsSync(path)) {
    failed += 1;
    told.push(
      `${part}: ended without results (a crash, a hang, or an install that failed): see above`,
    );
    continue;
  }
  const result = JSON.parse(readFileSync(path, 'utf8'));
  passed += result.numPassedTests;
  // A file that did not load has no test that could fail.
  failed += Math.max(
    result.numFailedTests,
    result.numFailedTestSuites > 0 ? 1 : 0,
    result.success ? 0 : 1,
  );
  if (result.numTotalTests === 0) failed += 1;
  const before = told.length;
  for (const file of result.testResults) told.push(...failuresOf(file));
  if (!result.success && told.length === before)
    told.push(`${part}: failed outside of its tests: see above`);
}

// The parts that print their steps and count them in a line of their own.
for (const [part, command] of [
  ['package', 'npm run test:package'],
  ['check', 'npm run check'],
]) {
  const path = join(folder, `${part}.txt`);
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const sum = /^(\d+) passed, (\d+) failed(?:, (\d+) not run)?$/m.exec(text);
  passed += sum === null ? 0 : Number(sum[1]);
  // A step that could not run here is no passed step.
  failed += sum === null ? 1 : Number(sum[2]) + Number(sum[3] ?? 0);
  if (sum === null) told.push(`${command}: ended without its sum: see above`);
  for (const [, step, said] of text.matchAll(
    /^(?:FAILED|not run) +(.*?) +[\d.]+ s\n((?: {7,}.*\n)*)/gm,
  )) {
    told.push(`✗ ${command} > ${step}\n${shortened(said)}`);
  }
}
// A part that ended badly without a single failed test counts as one.
if (broken === '1' && failed === 0) {
  failed = 1;
  told.push('a part ended badly: see above');
}

if (told.length > 0) console.log('== what failed');
for (const [index, failure] of told.slice(0, NAMED_MAX).entries()) {
  console.log(index < SHOWN_MAX ? failure : failure.split('\n', 1)[0]);
}
if (told.length > NAMED_MAX)
  console.log(`… and ${told.length - NAMED_MAX} more`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;

/** @returns {string[]} one text for each failed test of a file, or for the file itself */
function failuresOf({ name, status, message, assertionResults }) {
  const file = relative(process.cwd(), name);
  const failures = assertionResults.filter((test) => test.status === 'failed');
  if (failures.length === 0)
    return status === 'failed' ? [`✗ ${file}\n${shortened(message)}`] : [];
  return failures.map(
    (test) =>
      `✗ ${file} > ${test.fullName}\n${test.failureMessages.map(shortened).join('\n')}`,
  );
}

/** The first lines, without the places in libraries. */
function shortened(message) {
  const lines = `${message ?? ''}`
    .split('\n')
    .filter((line) => !/node_modules|node:internal/.test(line));
  return lines
    .slice(0, MESSAGE_LINES)
    .map((line) => `    ${line.slice(0, LINE_CHARS)}`)
    .join('\n');
}
