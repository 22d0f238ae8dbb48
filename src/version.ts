/** The version of this checkout. */
import packageJson from '../package.json' with { type: 'json' };

/** As package.json has it. */
export function version(): string {
  return packageJson.version;
}
