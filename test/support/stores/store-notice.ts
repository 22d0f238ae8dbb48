/** Prints, as the last line, that S3 was tested only against a double. */
import type { Reporter, TestModule } from 'vitest/node';

const NOTICE =
  'No real object store was run: S3 was tested against a double. `npm run test:stores` starts Ceph and Swift.\n';

export class StoreNotice implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const isDouble = modules.some(({ moduleId }) =>
      moduleId.endsWith('/s3-store.test.ts'),
    );
    const isReal = modules.some(({ project }) => project.name === 'stores');
    // Must come after everything that other reporters print.
    if (isDouble && !isReal)
      process.once('exit', () => process.stdout.write(NOTICE));
  }
}
