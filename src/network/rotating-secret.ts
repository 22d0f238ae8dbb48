/** A secret that another program may replace in its file while this process runs. */
import { isDeepStrictEqual } from 'node:util';

/** Where a secret comes from. */
export interface SecretOrigin<Value> {
  /** For people: `DATABASE_URL_FILE (/run/secrets/database)`, never the value. */
  readonly name: string;
  /**
   * Reads the secret again, and returns undefined if its file holds nothing usable now. Undefined if
   * the secret comes from no file, so that it stays as it is until the process ends.
   */
  readonly read: (() => Value | undefined) | undefined;
}

/** What the watcher of a process needs to know of a secret. */
export interface SecretState {
  readonly name: string;
  /** How long it has been refused without a break; undefined if it was not refused last. */
  refusedForMs(): number | undefined;
}

/**
 * Holds a secret and reads its file again only when a service refuses what it held. A new secret is
 * often in its file before the service knows it, and until then the old one is right.
 */
export class RotatingSecret<Value extends object> implements SecretState {
  readonly #origin: SecretOrigin<Value>;
  #current: Value;
  #refusedSinceMs: number | undefined;

  constructor(first: Value, origin: SecretOrigin<Value>) {
    this.#current = first;
    this.#origin = origin;
  }

  get name(): string {
    return this.#origin.name;
  }

  get isFromFile(): boolean {
    return this.#origin.read !== undefined;
  }

  /** For messages about a refused secret: what to look at, and whether it was read again. */
  get advice(): string {
    return this.isFromFile
      ? `check ${this.name}, which was read again and holds no other one`
      : `check ${this.name}`;
  }

  /** The same object until the secret changes, so that callers can say which one was refused. */
  get current(): Value {
    return this.#current;
  }

  /**
   * Called when a service refused a secret.
   * @param refused the object that was `current` when the secret was sent
   * @returns whether there is another one now, which is worth another attempt
   */
  renew(refused: Value): boolean {
    this.#refusedSinceMs ??= performance.now();
    // Another attempt has read the file meanwhile.
    if (this.#current !== refused) return true;
    const read = this.#origin.read?.();
    if (read === undefined || isDeepStrictEqual(read, refused)) return false;
    this.#current = read;
    return true;
  }

  /** Called when a service took the secret. */
  accept(): void {
    this.#refusedSinceMs = undefined;
  }

  refusedForMs(): number | undefined {
    return this.#refusedSinceMs === undefined
      ? undefined
      : performance.now() - this.#refusedSinceMs;
  }
}
