/** JSON log lines made readable for a terminal: time, level, message, then the fields. */
import { styleText } from 'node:util';
import { printable, truncate } from './format.ts';

const SHOWN_FIRST = new Set(['level', 'time', 'pid', 'msg', 'err']);
const VALUE_CHARACTERS_MAX = 200;
type Style = Parameters<typeof styleText>[0];
const STYLES: Readonly<Record<string, Style>> = { warn: 'yellow', error: 'red', debug: 'dim', trace: 'dim' };

/** @returns the line with its line end; one that is not JSON comes back as it is */
export function readableLog(line: string): string {
  let record: unknown;
  try {
    record = JSON.parse(line);
  } catch {
    return line;
  }
  if (typeof record !== 'object' || record === null) return line;
  const fields = new Map<string, unknown>(Object.entries(record));
  const level = shown(fields.get('level'));
  const head = `${shown(fields.get('time')).slice(11, 19)} ${level.padEnd(5)} ${shown(fields.get('msg'))}`;
  const values = [...fields]
    .filter(([name]) => !SHOWN_FIRST.has(name))
    .map(([name, value]) => `${name}=${shown(value)}`);
  const error = errorText(fields.get('err'));
  const text = [head, ...values, ...(error === undefined ? [] : [error])].join('  ');
  const style = STYLES[level];
  return `${style === undefined ? text : styleText(style, text)}\n`;
}

function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return printable(truncate(text, VALUE_CHARACTERS_MAX));
}

/** `message (CODE)`; stacks stay in the JSON form. */
function errorText(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('message' in error)) return undefined;
  const code = 'code' in error ? ` (${shown(error.code)})` : '';
  return `${shown(error.message)}${code}`;
}
