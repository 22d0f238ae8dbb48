/**
 * Checks within half a second whether a Docker daemon answers, before Docker's library is
 * loaded.
 */
import { existsSync } from 'node:fs';
import { request } from 'node:http';

/**
 * Starts a service in Docker if a daemon answers and the image is available, and
 * otherwise without Docker. If a daemon answers but the service does not start in it,
 * prints why.
 */
export async function inDockerOr<Service>(
  what: string,
  inDocker: () => Promise<Service>,
  without: () => Promise<Service>,
): Promise<Service> {
  if (!(await isDockerUp())) return without();
  try {
    return await inDocker();
  } catch (error) {
    process.stderr.write(
      `No ${what} in Docker, the tests start one themselves: ${String(error)}\n`,
    );
    return without();
  }
}

const PING_TIMEOUT_MS = 500;

export async function isDockerUp(): Promise<boolean> {
  const host = process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';
  if (!URL.canParse(host)) return false;
  const { protocol, hostname, port, pathname } = new URL(host);
  if (protocol === 'unix:')
    return existsSync(pathname) && ping({ socketPath: pathname });
  return protocol === 'tcp:' ? ping({ host: hostname, port }) : false;
}

function ping(
  where: { socketPath: string } | { host: string; port: string },
): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({
      ...where,
      path: '/_ping',
      signal: AbortSignal.timeout(PING_TIMEOUT_MS),
    });
    asked.once('response', (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    asked.once('error', () => {
      resolve(false);
    });
    asked.end();
  });
}
