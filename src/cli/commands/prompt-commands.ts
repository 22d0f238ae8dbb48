/**
 * The commands of `query`'s prompt: those that people know from psql and from DuckDB's
 * shell, and `\chart`.
 */
import { UsageError } from '../../errors/errors.ts';

export type PromptCommand =
  | { readonly kind: 'end' }
  | { readonly kind: 'help' }
  | { readonly kind: 'sql'; readonly sql: string }
  /**
   * Draws the last result; `chart` is the column to draw, or true for the default one.
   */
  | { readonly kind: 'chart'; readonly chart: string | true };

/** What `help` shows about the commands. */
export const PROMPT_COMMANDS_HELP = [
  String.raw`\d, \dt        the tables`,
  String.raw`\d TABLE       the columns of a table`,
  String.raw`\chart [COL]   the last result as a chart, of column COL if you name one`,
  String.raw`\q, quit       ends the prompt; so do exit and Ctrl-D`,
  '',
].join('\n');

const TABLE = /^[a-z_][\w.]*$/i;

/**
 * Reads a line as a command. Words such as `quit` are commands only if they stand alone,
 * because SQL may contain them too.
 * @returns undefined if the line is SQL or a ready question
 * @throws UsageError if the line begins like a command but is not one
 */
export function readCommand(line: string): PromptCommand | undefined {
  const [first = '', ...values] = line.trim().replace(/\s*;$/, '').split(/\s+/);
  const value = values.join(' ');
  const name = first.toLowerCase();
  if (name === String.raw`\chart` || name === '--chart')
    return { kind: 'chart', chart: value === '' ? true : value };
  if (['exit', 'quit', String.raw`\q`, '.exit', '.quit'].includes(name))
    return value === '' ? { kind: 'end' } : unlessWord(first);
  if (['help', '.help', String.raw`\?`, String.raw`\h`].includes(name))
    return value === '' ? { kind: 'help' } : unlessWord(first);
  if (/^(?:\\d[tv]?\+?|\.tables?|\.schema)$/.test(name) && value === '')
    return { kind: 'sql', sql: 'show tables' };
  if (/^(?:\\d[tv]?\+?|\.schema)$/.test(name) && TABLE.test(value))
    return { kind: 'sql', sql: `describe ${value}` };
  return unlessWord(first);
}

/** @throws UsageError if the word can only be meant as a command */
function unlessWord(first: string): undefined {
  if (!/^(?:\\|\.[a-z])/i.test(first)) return undefined;
  throw new UsageError([
    String.raw`${first}: there is no such command; the commands are \d, \d TABLE, ` +
      String.raw`\chart, help and \q`,
  ]);
}
