// Puts a question into the page's address, so that it can be shared and bookmarked.

const LINK = /^#ask\/(.+)$/;

export function linkOf(question) {
  return `#ask/${encodeURIComponent(JSON.stringify(question))}`;
}

/**
 * Returns the question that a fragment names, `{ sql }` or `{ question, options }`;
 * undefined if it names none. Anybody can write a link, so only strings are accepted.
 */
export function linkedQuestion(hash) {
  const [, encoded] = LINK.exec(hash) ?? [];
  if (encoded === undefined) return undefined;
  try {
    const { sql, question, options } = JSON.parse(decodeURIComponent(encoded));
    if (typeof sql === 'string') return { sql, options: {} };
    if (typeof question !== 'string') return undefined;
    const given = Object.entries(options ?? {}).filter(
      ([, value]) => typeof value === 'string',
    );
    return { question, options: Object.fromEntries(given) };
  } catch {
    return undefined;
  }
}
