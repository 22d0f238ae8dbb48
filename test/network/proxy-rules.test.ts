/** Which proxy a URL is reached through, by the variables as curl reads them. */
import { expect, test } from 'vitest';
import { checkProxies, readProxyRules } from '../../src/network/proxy-rules.ts';

const HTTPS = 'https://ledger.example.com/api';
const HTTP = 'http://ledger.example.com/api';

test.each([
  ['https_proxy', HTTPS, { https_proxy: 'http://p:3128' }, 'http://p:3128'],
  ['HTTPS_PROXY', HTTPS, { HTTPS_PROXY: 'http://p:3128' }, 'http://p:3128'],
  [
    'the lower-case name before the upper-case one',
    HTTPS,
    { HTTPS_PROXY: 'http://upper:1', https_proxy: 'http://lower:1' },
    'http://lower:1',
  ],
  [
    'the upper-case name if the lower-case one is empty',
    HTTPS,
    { HTTPS_PROXY: 'http://upper:1', https_proxy: '' },
    'http://upper:1',
  ],
  [
    'HTTP_PROXY for plain http',
    HTTP,
    { HTTP_PROXY: 'http://p:3128' },
    'http://p:3128',
  ],
  [
    'ALL_PROXY for either',
    HTTPS,
    { ALL_PROXY: 'http://p:3128' },
    'http://p:3128',
  ],
  [
    'its own variable before ALL_PROXY',
    HTTP,
    { http_proxy: 'http://own:1', ALL_PROXY: 'http://all:1' },
    'http://own:1',
  ],
  [
    'a proxy without a scheme',
    HTTPS,
    { https_proxy: 'p:3128' },
    'http://p:3128',
  ],
  ['port 1080 if none is given', HTTPS, { https_proxy: 'p' }, 'http://p:1080'],
  [
    'port 80 if that is given',
    HTTPS,
    { https_proxy: 'http://p:80' },
    'http://p',
  ],
  [
    'a proxy over TLS',
    HTTPS,
    { https_proxy: 'https://p:8443' },
    'https://p:8443',
  ],
])('the proxy variables give %s', (_what, url, ambient, origin) => {
  expect(readProxyRules(ambient).proxyOf(new URL(url))?.origin).toBe(origin);
});

test.each([
  ['http://ledger.example.com/', { https_proxy: 'http://p:1' }],
  ['https://ledger.example.com/', { http_proxy: 'http://p:1' }],
  ['https://ledger.example.com/', {}],
])('the proxy variables leave %s alone under %j', (url, ambient) => {
  expect(readProxyRules(ambient).proxyOf(new URL(url))).toBeUndefined();
});

test('a proxy carries user and password in a header, and not in its address', () => {
  const ambient = { https_proxy: 'me:p%40ss@p:3128' };
  const proxy = readProxyRules(ambient).proxyOf(new URL(HTTPS));
  const basic = Buffer.from('me:p@ss').toString('base64');

  expect(proxy).toMatchObject({
    origin: 'http://p:3128',
    authorization: `Basic ${basic}`,
  });
});

test.each([
  ['*', HTTPS],
  ['example.com', HTTPS],
  ['.example.com', HTTPS],
  ['*.example.com', HTTPS],
  ['EXAMPLE.com.', HTTPS],
  ['a.test, ledger.example.com', HTTPS],
  ['a.test ledger.example.com', HTTPS],
  ['ledger.example.com:443', HTTPS],
  ['10.0.0.0/8', 'https://10.1.2.3/'],
  ['10.1.2.3', 'https://10.1.2.3/'],
  ['10.1.2.3:8443', 'https://10.1.2.3:8443/'],
  ['::1', 'https://[::1]/'],
  ['[::1]', 'https://[::1]/'],
  ['[::1]:8443', 'https://[::1]:8443/'],
  ['fd00::/8', 'https://[fd12::1]/'],
])('NO_PROXY=%s exempts %s', (no_proxy, url) => {
  const rules = readProxyRules({ https_proxy: 'p:1', no_proxy });
  expect(rules.proxyOf(new URL(url))).toBeUndefined();
});

test.each([
  ['', HTTPS],
  [',', HTTPS],
  ['ample.com', HTTPS],
  ['example.com.evil', HTTPS],
  ['ledger.example.com:8443', HTTPS],
  ['10.0.0.0/8', 'https://11.1.2.3/'],
  ['10.0.0.0/99', 'https://10.1.2.3/'],
  ['10.0.0.0/8', 'https://10.example.com/'],
  ['fd00::/8', 'https://10.1.2.3/'],
])('NO_PROXY=%s does not exempt %s', (no_proxy, url) => {
  const rules = readProxyRules({ https_proxy: 'p:1', no_proxy });
  expect(rules.proxyOf(new URL(url))).toBeDefined();
});

test('checkProxies names every variable that holds no HTTP proxy, without its value', () => {
  const ambient = {
    https_proxy: 'socks5://me:hidden@p',
    HTTP_PROXY: 'http://',
  };

  expect(() => checkProxies(ambient)).toThrow(/HTTP_PROXY: [^]*https_proxy: /i);
  expect(() => checkProxies(ambient)).not.toThrow(/hidden/);
});

test('a SOCKS proxy in ALL_PROXY is refused when it applies, and only then', () => {
  const ambient = { ALL_PROXY: 'socks5://p', https_proxy: 'p:3128' };
  checkProxies(ambient);

  expect(readProxyRules(ambient).proxyOf(new URL(HTTPS))?.origin).toBe(
    'http://p:3128',
  );
  expect(() => readProxyRules(ambient).proxyOf(new URL(HTTP))).toThrow(
    'ALL_PROXY',
  );
});
