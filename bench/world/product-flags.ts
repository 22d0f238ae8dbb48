/**
 * The flags with which bin/ledger-mirror.js starts Node. They make Node free memory
 * sooner, because pages and rows are needed only briefly. A benchmark passes them to
 * every process that runs the product's code, including its own.
 */
export const PRODUCT_FLAGS: readonly string[] = [
  '--max-semi-space-size=4',
  '--heap-growing-percent=100',
];
