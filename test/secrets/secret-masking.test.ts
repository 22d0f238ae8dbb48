import { describe, expect, test } from 'vitest';
import { withoutSecrets } from '../../src/json/json-value.ts';
import {
  hideSecrets,
  rememberSecrets,
} from '../../src/secrets/secret-masking.ts';

const TOKEN = 'SRC-S3cret/99+88=';
const PAIR = Buffer.from('reader:pass%w0rd!').toString('base64');

rememberSecrets([
  `Bearer ${TOKEN}`,
  `Basic ${PAIR}`,
  'with "quotes" and\\slash',
  `a&b<c'd"`,
  'abc',
]);

describe('a secret of the configuration', () => {
  test.each([
    ['as it is', `Bearer ${TOKEN}`],
    ['without its scheme', TOKEN],
    ['in other letters', TOKEN.toUpperCase()],
    ['percent-encoded', encodeURIComponent(TOKEN)],
    [
      'as a form encodes it',
      new URLSearchParams({ a: TOKEN }).toString().slice(2),
    ],
    ['in base64', Buffer.from(TOKEN).toString('base64')],
    ['in base64 for URLs', Buffer.from(TOKEN).toString('base64url')],
    ['as Basic encodes it', PAIR],
    ['decoded from Basic', 'reader:pass%w0rd!'],
    ['the password of Basic alone', 'pass%w0rd!'],
    ['as HTML writes it', 'a&amp;b&lt;c&#39;d&quot;'],
    ['as HTML writes it in numbers', 'a&#x26;b&#60;c&#x27;d&#034;'],
    ['as JSON for HTML writes it', String.raw`a\u0026b\u003Cc\u0027d\u0022`],
    [
      'as JSON with slashes escaped writes it',
      String.raw`SRC-S3cret\/99+88\u003d`,
    ],
    [
      'as JSON writes it',
      JSON.stringify('with "quotes" and\\slash').slice(1, -1),
    ],
  ])('is hidden %s', (_form, echoed) => {
    const said = hideSecrets(`invalid header <${echoed}> for key`);
    expect(said).toBe('invalid header <[secret]> for key');
  });

  test('is hidden in every text of a value, in names, lists and errors of URLs', () => {
    const value = {
      code: 'SOURCE_UNAUTHORIZED',
      rows: 7n,
      list: [TOKEN, { [TOKEN]: null }],
      url: new URL(`https://x.example/?a=${encodeURIComponent(TOKEN)}`),
      at: new Date(0),
    };
    expect(withoutSecrets(value)).toEqual({
      code: 'SOURCE_UNAUTHORIZED',
      rows: '7',
      list: ['[secret]', { '[secret]': null }],
      url: 'https://x.example/?a=[secret]',
      at: '1970-01-01T00:00:00.000Z',
    });
  });

  test('that is shorter than four characters would blot out words, and is left', () => {
    expect(hideSecrets('the abc of it')).toBe('the abc of it');
  });

  test('does not let a value pollute a prototype', () => {
    const hidden = withoutSecrets(
      JSON.parse('{"__proto__": {"polluted": true}}') as object,
    );
    expect(Object.hasOwn(hidden, '__proto__')).toBe(true);
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
  });
});

describe('what looks like a secret', () => {
  test.each([
    'postgres://me:topsecret@db/x',
    'https://x.y/p?api_key=topsecret&page=1',
    'sent Bearer topsecret',
    'Authorization: basic topsecret==',
  ])('is hidden in %s', (text) => {
    expect(hideSecrets(text)).not.toContain('topsecret');
  });

  test('does not include ordinary text', () => {
    const text = 'see https://a.b/c?pagination.after=abc and me@x.y';
    expect(hideSecrets(text)).toBe(text);
  });
});
