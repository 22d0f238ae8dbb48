/**
 * The credentials for S3. The SDK finds them (a credentials file, a role, the machine's
 * own) and caches what it read from a file until the process ends. Here they are read
 * again when the store refuses them.
 */
import { isDeepStrictEqual } from 'node:util';
import type { S3 } from '@aws-sdk/client-s3';
import { defaultProvider } from '@aws-sdk/credential-provider-node';
import type { SecretState } from '../../network/rotating-secret.ts';
import { isCredentialsRefused, isMissing, isTaken } from './errors.ts';

type Chain = ReturnType<typeof defaultProvider>;
type ChainOptions = Parameters<typeof defaultProvider>[0];

export class S3Credentials implements SecretState {
  readonly name: string;
  /** Opens a chain that rereads every file; undefined if the credentials never change. */
  #openChain: (() => Chain) | undefined;
  #chain: Chain | undefined;
  #renewing: Promise<boolean> | undefined;
  #refusedSinceMs: number | undefined;

  /** @param name the name to show to an operator, never a credential */
  constructor(name: string) {
    this.name = name;
  }

  /**
   * Returns the provider for the client's option `credentialDefaultProvider`.
   * @param options the client's own options: its region, its profile, its agents
   */
  provide(options: ChainOptions): Chain {
    this.#openChain = () => defaultProvider({ ...options, ignoreCache: true });
    this.#chain = this.#openChain();
    return (given) => (this.#chain as Chain)(given);
  }

  /** Resends a call once if its credentials were refused and have since been replaced. */
  watch(client: S3): void {
    client.middlewareStack.add(
      (next) => async (given) => {
        const sent = this.#chain;
        try {
          return await this.#judge(() => next(given));
        } catch (error) {
          if (!isCredentialsRefused(error)) throw error;
          if (!(await this.#renew(sent))) throw error;
          return this.#judge(() => next(given));
        }
      },
      // This wraps the steps that look up the credentials and sign with them.
      { step: 'initialize', name: 'renewCredentials', priority: 'high' },
    );
  }

  refusedForMs(): number | undefined {
    return this.#refusedSinceMs === undefined
      ? undefined
      : performance.now() - this.#refusedSinceMs;
  }

  /**
   * Makes a call, and records whether the store accepted its credentials. If the store
   * replies that the object is absent or that a condition failed, it has accepted them.
   * Other errors, except a refusal, leave the record unchanged.
   */
  async #judge<Result>(call: () => Promise<Result>): Promise<Result> {
    try {
      const result = await call();
      this.#refusedSinceMs = undefined;
      return result;
    } catch (error) {
      if (isCredentialsRefused(error))
        this.#refusedSinceMs ??= performance.now();
      else if (isMissing(error) || isTaken(error))
        this.#refusedSinceMs = undefined;
      throw error;
    }
  }

  /**
   * Reads the credentials again. Calls that are refused at the same time share one read.
   * @param refused the chain whose credentials were refused
   * @returns whether different ones are available now
   */
  async #renew(refused: Chain | undefined): Promise<boolean> {
    if (this.#chain !== refused) return true;
    this.#renewing ??= this.#readAgain(refused).finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  async #readAgain(refused: Chain | undefined): Promise<boolean> {
    const chain = this.#openChain?.();
    if (chain === undefined || refused === undefined) return false;
    const found = await readCredentials(chain);
    if (found === undefined) return false;
    if (isDeepStrictEqual(found, await readCredentials(refused))) return false;
    this.#chain = chain;
    return true;
  }
}

/**
 * Returns undefined if no credentials are found, for example while their file is being
 * replaced.
 */
async function readCredentials(chain: Chain) {
  try {
    const { accessKeyId, secretAccessKey, sessionToken } = await chain();
    return { accessKeyId, secretAccessKey, sessionToken };
  } catch {
    return undefined;
  }
}
