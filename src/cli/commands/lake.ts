/** `lake`, `lake vacuum`, `lake restore VERSION`: the tables of the lake. */
import { openStore, scratchDirOf } from '../../app/data-dir.ts';
import { describeLake, restoreLake, vacuumLake } from '../../lake/overview.ts';
import type { Handler } from '../context.ts';
import { openMirror, requireMirror } from '../mirror.ts';
import { formatBytes, formatCount, formatTime } from '../../format/format.js';
import { formatTable } from '../output/format.ts';

/** Lists the lake's tables. It reads only the object store. */
export const lake: Handler = async (_, context) => {
  requireMirror(context.config, context.config.objectStoreUrl, 'objects');
  await using objects = await openStore(context);
  const scratchDir = scratchDirOf(context.config);
  const found = await describeLake({ objects, scratchDir }, context.signal);
  const { moments, tables } = found;
  const rows = tables.map(
    ({
      table,
      version,
      oldestVersion,
      files,
      rows: count,
      bytes,
      committedAt,
    }) => {
      const versions = [String(version), String(oldestVersion)];
      return [
        table,
        ...versions,
        files,
        count,
        formatBytes(bytes),
        committedAt === undefined ? '' : formatTime(committedAt),
      ];
    },
  );
  const mended = tables
    .filter((table) => table.mended > 0)
    .map(({ table }) => table);
  const lines = [
    moments.length === 0
      ? `No lake in ${found.store} yet; 'ledger-mirror load' builds it.`
      : `Version ${moments.at(-1)} in ${found.store}/lake; can be restored: ` +
        moments.join(', '),
    ...(mended.length === 0
      ? []
      : [`Removed broken checkpoints from ${mended.join(', ')}.`]),
  ];
  const header = [
    'table',
    'version',
    'oldest',
    'files',
    'rows',
    'bytes',
    'committed (UTC)',
  ];
  const table = tables.length === 0 ? '' : formatTable(header, rows);
  return { document: { ...found }, text: `${table}${lines.join('\n')}\n` };
};

export const vacuum: Handler = async (_, context) => {
  await using app = await openMirror(context);
  const removed = await vacuumLake(app.lake, context.signal);
  const text =
    `Removed ${formatCount(removed)} objects that no version has named for ` +
    'LAKE_RETENTION.\n';
  return { document: { removed }, text };
};

export const restore: Handler<{ version: number }> = async (
  options,
  context,
) => {
  await using app = await openMirror(context);
  const { version, tables } = await restoreLake(
    app.lake,
    options.version,
    context.signal,
  );
  const changed =
    tables.length === 0
      ? 'Nothing had changed since'
      : `Changed: ${tables.join(', ')}`;
  const text =
    `Version ${version} is what version ${options.version} was, until the next ` +
    `load. ${changed}.\n`;
  return { document: { version, tables }, text };
};
