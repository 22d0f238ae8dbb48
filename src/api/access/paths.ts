/** The paths with special access rules. All are compared exactly. */
import type { FastifyRequest } from 'fastify';

/**
 * Monitors request these without a token and under any host name; the responses reveal
 * nothing sensitive.
 */
const HEALTH_PATHS: ReadonlySet<string> = new Set(['/healthz', '/readyz']);

/** The paths that the login page needs before the user has presented a token. */
const LOGIN_PATHS: ReadonlySet<string> = new Set([
  '/login',
  '/logout',
  '/assets/console.css',
  '/assets/icon.svg',
  '/assets/login.js',
]);

/**
 * The console's pages. A link to one of them from another site is harmless, because
 * loading the page has no side effects.
 */
const PAGE_PATHS: ReadonlySet<string> = new Set([
  '/',
  '/first-night',
  '/data',
  '/statement',
  '/runs',
  '/settings',
  '/login',
  '/queues',
  '/queues/',
]);
const QUEUE_PAGE = /^\/queues\/queue\/[\w-]+$/;

/** Returns the path of the request target, exactly as it was sent. */
export function pathOf({ url }: FastifyRequest): string {
  return url.split('?', 1)[0] ?? url;
}

export function isHealthPath(request: FastifyRequest): boolean {
  return HEALTH_PATHS.has(pathOf(request));
}

/** Whether the path is served without a token. */
export function isOpenPath(request: FastifyRequest): boolean {
  return isHealthPath(request) || LOGIN_PATHS.has(pathOf(request));
}

export function isPagePath(path: string): boolean {
  return PAGE_PATHS.has(path) || QUEUE_PAGE.test(path);
}

const PLACEHOLDER = 'http://mirror.invalid';

/**
 * Checks the page that a client returns to after logging in.
 * @param text path, query and fragment, as the client sent them
 * @returns the same string if it is a page of this console; otherwise `/`, so that a
 *   login never redirects to another site
 */
export function safeReturnPath(text: string | undefined): string {
  const url = text?.startsWith('/') ? URL.parse(text, PLACEHOLDER) : null;
  if (url === null || url.origin !== PLACEHOLDER || !isPagePath(url.pathname))
    return '/';
  if (url.pathname === '/login') return '/';
  return `${url.pathname}${url.search}${url.hash}`;
}
