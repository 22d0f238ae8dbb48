// Formats names for readers. Counts, sizes and durations are formatted as on the command
// line: the server serves src/format/ as `shared/`.
export {
  formatBytes as bytes,
  formatCount as count,
  formatDuration as duration,
  formatPlural as plural,
  formatRough as rough,
  groupDigits as grouped,
} from '../shared/format.js';

/**
 * Shortens an id to its beginning and end, which are enough to distinguish ids. Callers
 * put the whole id into the element's title.
 */
export function shortId(id) {
  return id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

/** Turns names such as `MARGIN_LOW` and `newRows` into words. */
export function words(name) {
  return name
    .replaceAll('_', ' ')
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase();
}

export function kindName(kind) {
  return kind === 'nightly' ? 'nightly run' : kind;
}
