/** The walk's books in Postgres: who walks a list, under which lease. */
import { randomUUID } from 'node:crypto';
import { sql, type Selectable, type Transaction } from 'kysely';
import { errorCode } from '../../core/errors.ts';
import type { ListedRow, SessionRequest, WalkBooks, WalkKind, WalkSession } from '../ports.ts';
import type { Database, Warehouse } from '../../postgres/database.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { patiently } from '../../postgres/patience.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import { closeWalk, currentEpoch, LEASE } from './walk-lease.ts';
import { writeUnplacedParties } from './walk-rows.ts';
import { openWalkSession } from './walk-session.ts';

type Tx = Transaction<MirrorSchema>;
type WalkRow = Selectable<MirrorSchema['walks']>;

const UNIQUE_VIOLATION = '23505';

export class WalkStore implements WalkBooks {
  readonly #warehouse: Warehouse;
  readonly #db: Database;

  constructor(warehouse: Warehouse) {
    this.#warehouse = warehouse;
    this.#db = warehouse.db;
  }

  async open(request: SessionRequest, signal: AbortSignal): Promise<WalkSession | undefined> {
    const token = randomUUID();
    const options = { action: `open the walk of ${request.list}`, signal };
    let last: Taken | undefined;
    // Where the answer was lost, the token tells whether the walk is ours.
    const wasDone = async (): Promise<Taken | undefined> => {
      const ours = await this.#db
        .selectFrom('walks')
        .select('walk_id')
        .where('lease_token', '=', token)
        .executeTakeFirst();
      return ours === undefined ? undefined : last;
    };
    try {
      const taken = await patiently({ ...options, wasDone }, () =>
        inTransaction(this.#db, options, async (tx) => (last = await take(tx, request, token))),
      );
      return taken === undefined ? undefined : await openWalkSession(this.#warehouse, taken, signal);
    } catch (error) {
      // Two workers began the same walk at the same moment; the other one has it.
      if (errorCode(error) === `DATABASE_${UNIQUE_VIOLATION}`) return undefined;
      throw error;
    }
  }

  async keepParty(row: ListedRow): Promise<{ readonly wasKnown: boolean }> {
    return inTransaction(this.#db, { action: 'store a party' }, async (tx) => {
      const known = await tx
        .selectFrom('parties')
        .select('party_id')
        .where('party_id', '=', row.key)
        .executeTakeFirst();
      await writeUnplacedParties(tx, { epoch: await currentEpoch(tx) }, [row]);
      return { wasKnown: known !== undefined };
    });
  }
}

interface Taken {
  readonly walk: WalkRow;
  readonly token: string;
  readonly resumed: boolean;
}

async function take(tx: Tx, request: SessionRequest, token: string): Promise<Taken | undefined> {
  const epoch = await currentEpoch(tx);
  const { rows } = await sql<FoundWalk>`
    select *, coalesce(lease_until > clock_timestamp(), false) as is_leased,
      exists (select from mirror.runs where runs.run_id = walks.run_id and verdict is not null) as has_verdict
    from mirror.walks where list = ${request.list} and state = 'open' for update`.execute(tx);
  const [found] = rows;
  if (found?.is_leased === true) return undefined;
  const isOfUse = found?.epoch === epoch && canGoOn(found, request);
  if (found !== undefined && !isOfUse) await closeWalk(tx, found.walk_id, 'abandoned');
  const walk = isOfUse && found !== undefined ? found : await begin(tx, request, epoch);
  await sql`
    update mirror.walks set lease_token = ${token}, lease_until = clock_timestamp() + ${LEASE}::interval,
      run_id = ${request.runId}, base_url = ${request.baseUrl}
    where walk_id = ${walk.walk_id}`.execute(tx);
  return { walk: { ...walk, run_id: request.runId }, token, resumed: walk === found };
}

interface FoundWalk extends WalkRow {
  readonly is_leased: boolean;
  readonly has_verdict: boolean;
}

/**
 * An audit covers a walk, so an audit that was killed is finished by either; one that came to an end before
 * it was whole only by the next audit, or each walk until then would try it again. Its chains lie over
 * others, so it goes on only where its cursors are good. A walk's chains need no walk.
 */
function canGoOn(found: FoundWalk, request: SessionRequest): boolean {
  if (found.kind === 'walk') return request.kind === 'walk';
  return found.base_url === request.baseUrl && (request.kind === 'audit' || !found.has_verdict);
}

async function begin(tx: Tx, request: SessionRequest, epoch: number): Promise<WalkRow> {
  const { list, runId, baseUrl } = request;
  // Pages guard their own walk. Those of the last one stay to be looked at.
  await sql`delete from mirror.walk_pages page using mirror.walks walk
    where walk.walk_id = page.walk_id and walk.list = ${list}
      and walk.walk_id < (select max(walk_id) from mirror.walks where list = ${list})`.execute(tx);
  return tx
    .insertInto('walks')
    .values({ epoch, list, kind: await kindOf(tx, request, epoch), run_id: runId, base_url: baseUrl })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** There is nothing to audit before the first walk, which reads every page anyway. */
async function kindOf(tx: Tx, { kind, list }: SessionRequest, epoch: number): Promise<WalkKind> {
  if (kind === 'walk') return kind;
  const chain = await tx
    .selectFrom('chains')
    .select('chain_id')
    .where('epoch', '=', epoch)
    .where('list', '=', list)
    .where('audit_walk', 'is', null)
    .limit(1)
    .executeTakeFirst();
  return chain === undefined ? 'walk' : 'audit';
}
