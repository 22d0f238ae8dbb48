/**
 * The flags with which bin/ledger-mirror.js starts Node. They keep pages that are no longer
 * needed from filling the memory. A benchmark gives them to every process in which the
 * product works, its own included.
 */
export const PRODUCT_FLAGS: readonly string[] = [
  '--max-semi-space-size=4',
  '--heap-growing-percent=100',
];
