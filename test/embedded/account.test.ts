/** As whom the server runs. */
import { expect, test } from 'vitest';
import { parsePasswd, serverAccount } from '../../src/embedded/account.ts';

const PASSWD = parsePasswd(
  [
    'root:x:0:0:root:/root:/bin/bash',
    'nobody:x:65534:65534::/:/x',
    'ann:x:1000:1001::/home/ann:/x',
    'broken',
    '',
  ].join('\n'),
);

test('whoever is not root stays who they are', () => {
  expect(serverAccount(1000, 1000, PASSWD)).toEqual({});
});

test('root becomes the owner of the data, or else postgres, or else an account that runs nothing', () => {
  expect(serverAccount(0, 1000, PASSWD)).toEqual({ uid: 1000, gid: 1001 });
  const withGames = [...PASSWD, ...parsePasswd('games:x:5:60::/:/x')];
  expect(serverAccount(0, 0, withGames)).toEqual({ uid: 5, gid: 60 });
  const withPostgres = [...PASSWD, ...parsePasswd('postgres:x:101:104::/:/x')];
  expect(serverAccount(0, 0, withPostgres)).toEqual({ uid: 101, gid: 104 });
});

test('a user without a name, or a root without a stand-in, is refused', () => {
  expect(() => serverAccount(4321, 4321, PASSWD)).toThrow(
    expect.objectContaining({ code: 'EMBEDDED_ACCOUNT' }),
  );
  expect(() => serverAccount(0, 0, [])).toThrow(
    expect.objectContaining({ code: 'EMBEDDED_ACCOUNT' }),
  );
  // `nobody` is many: each could read what the other keeps.
  expect(() => serverAccount(0, 0, PASSWD)).toThrow(
    expect.objectContaining({ code: 'EMBEDDED_ACCOUNT' }),
  );
});
