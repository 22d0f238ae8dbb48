/** A log that a test can read. */
import type { Log } from '../../src/logging/log.ts';

export interface RecordedLine {
  readonly level: 'info' | 'warn';
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

export function recordingLog(): Pick<Log, 'info' | 'warn'> & {
  readonly lines: RecordedLine[];
} {
  const lines: RecordedLine[] = [];
  const record =
    (level: RecordedLine['level']) =>
    (
      fields: Readonly<Record<string, unknown>> | string,
      message?: string,
    ): void => {
      if (typeof fields === 'string')
        lines.push({ level, message: fields, fields: {} });
      else lines.push({ level, message: message ?? '', fields });
    };
  return { lines, info: record('info'), warn: record('warn') };
}
