/** The version of the program. */
import packageJson from '../package.json' with { type: 'json' };

/** Returns the version that package.json states. */
export function version(): string {
  return packageJson.version;
}
