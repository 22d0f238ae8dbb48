// Questions to the mirror.

const TIMEOUT_MS = 15_000;

/** Where the session is over, the page goes to the login by itself. */
export async function ask(path, { timeoutMs = TIMEOUT_MS, ...options } = {}) {
  const response = await fetch(path, {
    signal: AbortSignal.timeout(timeoutMs),
    ...options,
    headers: { accept: 'application/json', ...options.headers },
  }).catch(() => {
    throw new Error('the mirror does not answer');
  });
  if (response.status === 401) location.assign('/login');
  const body = response.status === 204 ? undefined : await response.json().catch(() => undefined);
  if (!response.ok) throw new Error(body?.message ?? `status ${response.status}`);
  return body;
}

export function post(path, body, options = {}) {
  return ask(path, {
    ...options,
    method: 'POST',
    ...(body === undefined
      ? {}
      : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
}
