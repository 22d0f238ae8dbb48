// Questions to the mirror.

const TIMEOUT_MS = 15_000;

/**
 * Where the session is over, the page goes to the login by itself.
 * @throws Error with what the mirror says is wrong
 */
export async function send(path, { timeoutMs = TIMEOUT_MS, ...options } = {}) {
  const response = await fetch(path, {
    signal: AbortSignal.timeout(timeoutMs),
    ...options,
  }).catch(() => {
    throw new Error('the mirror does not answer');
  });
  if (response.ok) return response;
  if (response.status === 401) location.assign('/login');
  const body = await response.json().catch(() => undefined);
  throw new Error(body?.message ?? `status ${response.status}`);
}

export async function ask(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? undefined : response.json();
}

export function post(path, body, options) {
  return ask(path, { ...options, ...asJson(body) });
}

export function asJson(body) {
  return {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
}
