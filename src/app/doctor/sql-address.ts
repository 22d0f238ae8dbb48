/** How a SQL client on this machine reaches an embedded Postgres. The password stays in its file. */
import { join } from 'node:path';

export interface SqlAddress {
  readonly host: string;
  readonly port: string;
  readonly user: string;
  readonly database: string;
  readonly passwordFile: string;
}

export function sqlAddress(connectionString: string, dataDir: string): SqlAddress {
  const { hostname: host, port, username: user, pathname } = new URL(connectionString);
  return { host, port, user, database: pathname.slice(1), passwordFile: join(dataDir, 'postgres/password') };
}
