/** Each store that this process needs, asked the smallest question there is: for readiness and for metrics. */
import type { Probe } from '../../api/http/ports.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Warehouse } from '../../postgres/database.ts';
import type { Queues } from '../../queue/queues.ts';

export interface ProbedApp {
  readonly warehouse: Pick<Warehouse, 'pool'>;
  readonly queues: Queues;
  readonly store: ObjectStore;
}

export function storeProbes({ warehouse, queues, store }: ProbedApp): readonly Probe[] {
  return [
    { name: 'database', check: () => warehouse.pool.query('select 1') },
    { name: 'queues', check: () => queues.counts('export') },
    { name: 'objects', check: (signal) => store.head('probe/readyz', signal) },
  ];
}
