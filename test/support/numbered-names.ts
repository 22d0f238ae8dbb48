/**
 * Names that differ from one test to the next, such as queue prefixes for mirrors that
 * must not share queues.
 */

/**
 * Returns a function that returns `<prefix>-1`, then `<prefix>-2`, and so on.
 */
export function numberedNames(prefix: string): () => string {
  let count = 0;
  return () => {
    count += 1;
    return `${prefix}-${count}`;
  };
}
