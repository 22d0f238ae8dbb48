// Sends requests to the mirror. Paths are relative, so that they stay within the path
// prefix of a proxy.

const TIMEOUT_MS = 15_000;

/**
 * Sends a request. If the session has expired, the browser is sent to the login page,
 * and returns here after the login.
 * @throws Error with the mirror's own message
 */
export async function send(path, { timeoutMs = TIMEOUT_MS, ...options } = {}) {
  const response = await fetch(path, {
    signal: AbortSignal.timeout(timeoutMs),
    ...options,
  }).catch(() => {
    throw new Error('the mirror does not answer');
  });
  if (response.ok) return response;
  if (response.status === 401) goToLogin();
  const body = await response.json().catch(() => undefined);
  throw new Error(body?.message ?? `status ${response.status}`);
}

function goToLogin() {
  const view = location.pathname.split('/').at(-1);
  const next = `/${view}${location.search}${location.hash}`;
  location.assign(`login?next=${encodeURIComponent(next)}`);
}

/** Returns the JSON of the response; undefined if it has no body. */
export async function ask(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? undefined : response.json();
}

export function post(path, body, options) {
  return ask(path, { ...options, ...asJson(body) });
}

/**
 * Returns a function that loads once for the whole page. After a failure, the next call
 * loads again.
 */
export function once(load) {
  let loading;
  return () => {
    loading ??= load().catch((error) => {
      loading = undefined;
      throw error;
    });
    return loading;
  };
}

export function asJson(body) {
  return {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
}
