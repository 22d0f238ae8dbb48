/** Compiles `kernel/row-scan.ts` (AssemblyScript) to the module that `src/export/row-scan.ts` loads. */
import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = resolve(import.meta.dirname, '..');
/** As a program: its types bring AssemblyScript's own globals along, which would be everybody's. */
const COMPILER = join(ROOT, 'node_modules/assemblyscript/bin/asc.js');
export const MODULE_PATH = join(ROOT, 'src/export/row-scan.wasm');
/** Twenty pages: the records, a block of a MiB, and a little behind it. It never grows. */
const MEMORY = ['--initialMemory', '20', '--maximumMemory', '20'];
const OPTIONS = ['-O3', '--runtime', 'stub', '--enable', 'simd', '--noAssert', ...MEMORY];
const COMPILE_MS_MAX = 60_000;

/** @throws Error with what the compiler said */
export async function compileKernel(outFile: string): Promise<void> {
  await promisify(execFile)(
    process.execPath,
    [COMPILER, 'kernel/row-scan.ts', ...OPTIONS, '--outFile', outFile],
    { cwd: ROOT, timeout: COMPILE_MS_MAX },
  );
}
