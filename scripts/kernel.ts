/** `npm run kernel`: compiles the WebAssembly module anew; to be called when its source changes. */
import { compileKernel, MODULE_PATH } from './kernel-compile.ts';

await compileKernel(MODULE_PATH);
