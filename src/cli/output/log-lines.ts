/** JSON log lines made readable for a terminal: time, level, message, then the fields. */
import { styleText } from 'node:util';
import { printable, truncate } from './format.ts';

const VALUE_CHARACTERS_MAX = 200;
type Style = Parameters<typeof styleText>[0];
const STYLES: Readonly<Record<string, Style>> = { warn: 'yellow', error: 'red', debug: 'dim', trace: 'dim' };

/** @returns a line of the log with its line end */
export function readableLog(line: string): string {
  const {
    level,
    time,
    pid: _pid,
    msg,
    err,
    ...fields
  } = JSON.parse(line) as Readonly<Record<string, unknown>>;
  const text = [
    `${shown(time).slice(11, 19)} ${shown(level).padEnd(5)} ${shown(msg)}`,
    ...Object.entries(fields).map(([name, value]) => `${name}=${shown(value)}`),
    ...errorText(err),
  ].join('  ');
  const style = STYLES[shown(level)];
  return `${style === undefined ? text : styleText(style, text)}\n`;
}

function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return printable(truncate(text, VALUE_CHARACTERS_MAX));
}

/** `message (CODE)`; stacks stay in the JSON form. */
function errorText(error: unknown): readonly string[] {
  if (typeof error !== 'object' || error === null || !('message' in error)) return [];
  return [`${shown(error.message)}${'code' in error ? ` (${shown(error.code)})` : ''}`];
}
