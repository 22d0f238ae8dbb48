/** Sessions over a real database: every process of a mirror knows which were ended. */
import { describe, expect, test } from 'vitest';
import { readSessionSecret } from '../../../src/api/access/store/ended-sessions.ts';
import { openRows } from '../../../src/postgres/api-rows.ts';
import { apiWithoutDatabase, freshWarehouse } from '../mirror.ts';

const TOKEN = 'correct-horse-battery';
const warehouse = await freshWarehouse();
const another = await freshWarehouse();

describe('the sessions of two processes', () => {
  test('are opened by one, accepted by the other and ended for both', async () => {
    const [first, second] = await Promise.all(
      [1, 2].map(() =>
        apiWithoutDatabase({ token: TOKEN, rows: openRows(warehouse.pool) }),
      ),
    );
    const login = await first?.inject({
      method: 'POST',
      url: '/login',
      payload: { token: TOKEN },
    });
    const cookie = String(login?.headers['set-cookie']).split(';', 1)[0] ?? '';
    const status = async (server = first): Promise<number | undefined> =>
      (await server?.inject({ url: '/mirror/runs', headers: { cookie } }))
        ?.statusCode;
    expect([await status(first), await status(second)]).toEqual([200, 200]);
    await second?.inject({
      method: 'POST',
      url: '/logout',
      headers: { cookie },
    });
    expect([await status(first), await status(second)]).toEqual([401, 401]);
  });

  test('are signed with a secret of this mirror that is not the one of the cursors', async () => {
    const [secret, theirs] = await Promise.all([
      readSessionSecret(openRows(warehouse.pool)),
      readSessionSecret(openRows(another.pool)),
    ]);
    expect(secret).toHaveLength(32);
    expect(secret.equals(theirs)).toBe(false);
    const { rows } = await warehouse.pool.query<{ cursor_secret: Buffer }>(
      'select cursor_secret from mirror.identity',
    );
    expect(rows[0]?.cursor_secret.equals(secret)).toBe(false);
  });
});
