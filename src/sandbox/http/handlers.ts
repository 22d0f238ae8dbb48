/** What each route answers. Errors of every kind end here and become the service's answers. */
import { sendWhole, BodyWriter, type AnswerHead, type Exchange } from './answer.ts';
import { exportFailure, gatewayError, ServiceError } from './errors.ts';
import { asMessages, csvPieces, disposition, enveloped, exportRequest, failingAt } from './export.ts';
import type { SandboxRequest } from './faults.ts';
import {
  checkpointsFailed,
  openCheckpointList,
  openPartyList,
  pageJson,
  pageOfParty,
  partiesFailed,
} from './lists.ts';
import type { Head, Network } from '../network/network.ts';
import { pageOf, pageRequest, type PageParameters } from './paging.ts';
import { Query } from './query.ts';
import { RateLimiter, type Admission } from './rate-limit.ts';

type Headers = AnswerHead['headers'];
const JSON_TYPE: Headers = [['Content-Type', 'application/json']];
/** The handlers' own headers carry gRPC's content type along; so an error has two. */
const JSON_AND_GRPC: Headers = [['Content-Type', ['application/json', 'application/grpc']]];

export class Handlers {
  readonly #network: Network;
  readonly #limiter: RateLimiter;
  readonly #onFatalQuestion: () => void;
  #exports = 0;

  /** @param onFatalQuestion told of a question that kills a node of this release, before its answer breaks off */
  constructor(network: Network, onFatalQuestion: () => void) {
    this.#network = network;
    this.#onFatalQuestion = onFatalQuestion;
    this.#limiter = new RateLimiter(network.settings.rateLimit);
  }

  async answer(exchange: Exchange, request: SandboxRequest): Promise<void> {
    const instead = exchange.misbehaviour.answer;
    if (instead !== undefined) {
      const headers = Object.entries(instead.headers ?? { 'Content-Type': 'application/json' });
      await sendWhole(exchange, { status: instead.status, headers }, instead.body);
    } else if (request.route === 'other') {
      await sendError(exchange, gatewayError('NotFound', 'Not Found'), JSON_TYPE);
    } else if (request.method !== 'GET') {
      await sendError(exchange, gatewayError('Unimplemented'), JSON_TYPE);
    } else if (request.route === 'export') {
      await this.#export(exchange, request);
    } else {
      await this.#list(exchange, request, request.route);
    }
  }

  async #list(exchange: Exchange, request: SandboxRequest, list: 'parties' | 'checkpoints'): Promise<void> {
    const head = this.#network.head();
    let handlerHeaders: Headers = [];
    try {
      const query = new Query(request.queryText);
      const asked = { partyId: query.text('party_id') ?? '', page: pageParameters(query) };
      const admission = this.#limiter.admit(clientOf(exchange));
      handlerHeaders = [...admission.headers, ...this.#blockHeaders(head)];
      const json = this.#listJson(list, asked, head, admission);
      const body = query.has('pretty') ? JSON.stringify(JSON.parse(json), undefined, 1) : json;
      const sent = exchange.misbehaviour.rewrite?.(body) ?? body;
      await sendWhole(exchange, { status: 200, headers: [...JSON_TYPE, ...handlerHeaders] }, sent);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      const type = error.origin === 'gateway' ? JSON_TYPE : JSON_AND_GRPC;
      await sendError(exchange, error, [...type, ...handlerHeaders]);
    }
  }

  #listJson(
    list: 'parties' | 'checkpoints',
    asked: { partyId: string; page: PageParameters },
    head: Head,
    admission: Admission,
  ): string {
    if (admission.refused !== undefined) throw admission.refused;
    const request = pageRequest(asked.page);
    const network = this.#network;
    if (list === 'checkpoints')
      return pageJson(list, pageOf(openCheckpointList(network, head), request, checkpointsFailed));
    if (asked.partyId !== '') return pageJson(list, pageOfParty(network, asked.partyId, head));
    return pageJson(list, pageOf(openPartyList(network, head), request, partiesFailed));
  }

  async #export(exchange: Exchange, request: SandboxRequest): Promise<void> {
    const { settings } = this.#network;
    let headers: Headers = [];
    let body: BodyWriter | undefined;
    try {
      const asked = exportRequest(new Query(request.queryText), settings.assetRequired);
      if (this.#network.release.dies && asked.from === undefined && asked.to !== undefined) {
        this.#onFatalQuestion();
        exchange.response.destroy();
        return;
      }
      headers = [['Content-Disposition', disposition(asked, settings.zoneMinutes)]];
      this.#exports += 1;
      const csv = failing(exchange, csvPieces(this.#network, asked, this.#exports));
      const messages = settings.form === 'messages';
      const type = messages ? 'application/json' : 'text/csv';
      body = new BodyWriter(exchange, { status: 200, headers: [...headers, ['Content-Type', type]] });
      for (const piece of messages ? asMessages(csv) : csv) {
        if (!(await body.write(piece))) return;
      }
      await body.end();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      await this.#exportFailed(exchange, error, body, headers);
    }
  }

  /**
   * Before the first byte an error has a status of its own. Behind it, it is glued to what was sent, with
   * no line end before it, and the answer ends as if all were well.
   */
  async #exportFailed(
    exchange: Exchange,
    error: ServiceError,
    body: BodyWriter | undefined,
    headers: Headers,
  ): Promise<void> {
    const messages = this.#network.settings.form === 'messages';
    if (body?.begun === true) {
      const tail = messages ? `${enveloped(error)}\n` : enveloped(error);
      if (await body.write(Buffer.from(tail, 'utf8'))) await body.end();
    } else if (error.origin === 'gateway') {
      await sendWhole(exchange, { status: error.status, headers: JSON_TYPE }, error.spacedBody);
    } else {
      // In pieces, as the service does: without a length.
      const whole = new BodyWriter(exchange, { status: error.status, headers: [...headers, ...JSON_TYPE] });
      const text = messages ? error.body : enveloped(error);
      if (await whole.write(Buffer.from(text, 'utf8'))) await whole.end();
    }
  }

  #blockHeaders(head: Head): Headers {
    const { chain } = this.#network;
    return [
      ['X-Block-Height', `${head.block === 0 ? 0 : chain.heightOf(head.block)}`],
      ['X-Block-Timestamp', `${head.block === 0 ? 0 : chain.timeOf(head.block) * 1000n}`],
    ];
  }
}

function pageParameters(query: Query): PageParameters {
  return {
    first: query.int32('pagination.first'),
    after: query.text('pagination.after'),
    last: query.int32('pagination.last'),
    before: query.text('pagination.before'),
    newestFirst: query.boolean('pagination.newest_first'),
  };
}

function failing(exchange: Exchange, pieces: Iterable<Buffer>): Iterable<Buffer> {
  const atByte = exchange.misbehaviour.errorAfterBytes;
  return atByte === undefined ? pieces : failingAt(pieces, atByte, exportFailure('copying to stdout: boom'));
}

async function sendError(exchange: Exchange, error: ServiceError, headers: Headers): Promise<void> {
  await sendWhole(exchange, { status: error.status, headers }, error.body);
}

/** Whom the rate limit takes a client for: what it says of itself, and where it comes from. */
function clientOf({ request }: Exchange): string {
  const peer = request.socket.remoteAddress ?? '';
  const forwarded = request.headers['x-forwarded-for'];
  return forwarded === undefined ? peer : `${[forwarded].flat().join(', ')}, ${peer}`;
}
