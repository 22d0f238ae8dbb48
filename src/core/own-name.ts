/** How a reader calls this program. A checkout runs its sources, and has the command behind npx; a package is compiled. */
export const COMMAND = import.meta.filename.endsWith('.ts') ? 'npx ledger-mirror' : 'ledger-mirror';
