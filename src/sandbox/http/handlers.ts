/** What each route answers. Errors of every kind end here and become the service's answers. */
import type { Network } from '../network/network.ts';
import type { Answer, Exchange, Headers } from './answer.ts';
import { gatewayError, ServiceError } from './errors.ts';
import { answerExport } from './export.ts';
import type { SandboxRequest } from './faults.ts';
import { openCheckpointList, openPartyList, pageJson, pageOfParty } from './lists.ts';
import { pageOf, pageRequest, readPageParameters } from './paging.ts';
import { Query } from './query.ts';
import { type Admission, openRateLimiter } from './rate-limit.ts';

const JSON_TYPE: Headers = [['Content-Type', 'application/json']];
/** The handlers' own headers carry gRPC's content type along; so an error has two. */
const JSON_AND_GRPC: Headers = [['Content-Type', ['application/json', 'application/grpc']]];

/** @returns answers a request; undefined where it kills a node of this release */
export function openHandlers(
  network: Network,
): (asked: SandboxRequest, exchange: Exchange) => Answer | undefined {
  const admit = openRateLimiter(network.settings.rateLimit);
  let exports = 0;
  return (asked, { request, misbehaviour }) => {
    const { answer, rewrite = (json: string) => json } = misbehaviour;
    if (answer !== undefined) {
      const { status, body, headers = { 'Content-Type': 'application/json' } } = answer;
      return { status, headers: Object.entries(headers), body };
    }
    if (asked.route === 'other') return refuse(gatewayError('NotFound', 'Not Found'), JSON_TYPE);
    if (asked.method !== 'GET') return refuse(gatewayError('Unimplemented'), JSON_TYPE);
    if (asked.route === 'export') {
      exports += 1;
      return answerExport(network, asked.queryText, exports, misbehaviour);
    }
    // Whom the rate limit takes a client for: what it says of itself, and where it comes from.
    const client = [request.headers['x-forwarded-for'] ?? [], request.socket.remoteAddress ?? ''].flat();
    const list = answerList(network, asked.route, asked.queryText, () => admit(client.join(', ')));
    return list.status === 200 ? { ...list, body: rewrite(list.body) } : list;
  };
}

function refuse(error: ServiceError, headers: Headers): Answer & { readonly body: string } {
  return { status: error.status, headers, body: error.body() };
}

function answerList(
  network: Network,
  list: 'parties' | 'checkpoints',
  queryText: string,
  admit: () => Admission,
): Answer & { readonly body: string } {
  const head = network.head();
  let handlerHeaders: Headers = [];
  try {
    const query = new Query(queryText);
    const partyId = query.text('party_id') ?? '';
    const parameters = readPageParameters(query);
    const { headers, refused } = admit();
    const [height, micros] =
      head.block === 0 ? [0, 0n] : [network.chain.heightOf(head.block), network.chain.timeOf(head.block)];
    handlerHeaders = [
      ...headers,
      ['X-Block-Height', `${height}`],
      ['X-Block-Timestamp', `${micros * 1000n}`],
    ];
    if (refused !== undefined) throw refused;
    const request = pageRequest(parameters);
    const open = list === 'parties' ? openPartyList : openCheckpointList;
    const isLookup = list === 'parties' && partyId !== '';
    const page = isLookup ? pageOfParty(network, partyId, head) : pageOf(open(network, head), request);
    const json = pageJson(list, page);
    const body = query.has('pretty') ? JSON.stringify(JSON.parse(json), undefined, 1) : json;
    return { status: 200, headers: [...JSON_TYPE, ...handlerHeaders], body };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    const type = error.origin === 'gateway' ? JSON_TYPE : JSON_AND_GRPC;
    return refuse(error, [...type, ...handlerHeaders]);
  }
}
