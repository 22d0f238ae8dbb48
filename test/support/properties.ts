/**
 * fast-check, with its seed: every run looks elsewhere, but in CI, where a change must
 * not be refused for what was there before it. A run that failed says its seed; `SEED=…
 * npx vitest run <file>` repeats it.
 */
import * as fc from 'fast-check';

const CI_SEED = 20_230_501;

const { SEED, CI } = process.env;
if (SEED !== undefined) fc.configureGlobal({ seed: Number(SEED) });
else if (CI !== undefined) fc.configureGlobal({ seed: CI_SEED });

export { fc };
