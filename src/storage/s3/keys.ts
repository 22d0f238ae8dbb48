/**
 * The credentials with which S3 is called. The SDK finds them (a file of credentials, a
 * role, the machine's own), and keeps what it has read of a file until the process ends.
 * These are read again when the store refuses them.
 */
import { isDeepStrictEqual } from 'node:util';
import type { S3 } from '@aws-sdk/client-s3';
import { defaultProvider } from '@aws-sdk/credential-provider-node';
import type { SecretState } from '../../network/rotating-secret.ts';
import { isCredentialsRefused, isMissing, isTaken } from './errors.ts';

type Chain = ReturnType<typeof defaultProvider>;
type ChainOptions = Parameters<typeof defaultProvider>[0];

export class S3Keys implements SecretState {
  readonly name: string;
  /** Makes a chain that reads every file anew; undefined if the keys never change. */
  #openChain: (() => Chain) | undefined;
  #chain: Chain | undefined;
  #renewing: Promise<boolean> | undefined;
  #refusedSinceMs: number | undefined;

  /** @param name what to show to an operator, never a key */
  constructor(name: string) {
    this.name = name;
  }

  /**
   * Returns the provider that the client's option `credentialDefaultProvider` takes.
   * @param options the client's own options: its region, its profile, its agents
   */
  provide(options: ChainOptions): Chain {
    this.#openChain = () => defaultProvider({ ...options, ignoreCache: true });
    this.#chain = this.#openChain();
    return (given) => (this.#chain as Chain)(given);
  }

  /** Sends each call once more if its credentials were refused and have been replaced. */
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
      // Outside of the steps that look the credentials up and sign with them.
      { step: 'initialize', name: 'renewCredentials', priority: 'high' },
    );
  }

  refusedForMs(): number | undefined {
    return this.#refusedSinceMs === undefined
      ? undefined
      : performance.now() - this.#refusedSinceMs;
  }

  /**
   * Makes a call, and records whether its credentials were accepted. An absent object and
   * a condition that fails are answers to accepted credentials; any other error shows
   * nothing about them.
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
   * Reads the credentials again. Calls that are refused at the same time share one
   * reading.
   * @param refused the chain whose credentials were refused
   * @returns whether there are others now
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
    const found = await readKeys(chain);
    if (found === undefined) return false;
    if (isDeepStrictEqual(found, await readKeys(refused))) return false;
    this.#chain = chain;
    return true;
  }
}

/** Returns undefined if no credentials are found, as while their file is replaced. */
async function readKeys(chain: Chain) {
  try {
    const { accessKeyId, secretAccessKey, sessionToken } = await chain();
    return { accessKeyId, secretAccessKey, sessionToken };
  } catch {
    return undefined;
  }
}
