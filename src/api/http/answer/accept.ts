/** How much a client wants one of what an Accept header names, from 0 to 1; 0 where it is not named. */
export function weightOf(accept: string | undefined, name: string): number {
  for (const range of (accept ?? '').toLowerCase().split(',')) {
    const [named, ...parameters] = range.split(';').map((part) => part.trim());
    if (named !== name) continue;
    const weight = parameters.find((parameter) => parameter.startsWith('q='));
    const value = weight === undefined ? 1 : Number(weight.slice(2));
    return Number.isFinite(value) ? value : 0;
  }
  return 0;
}
