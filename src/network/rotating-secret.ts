/** A secret whose file another program may update while this process runs. */
import { isDeepStrictEqual } from 'node:util';

/** The origin of a secret. */
export interface SecretOrigin<Value> {
  /**
   * The name to show to an operator: `DATABASE_URL_FILE (/run/secrets/database)`, never
   * the value.
   */
  readonly name: string;
  /**
   * Reads the secret again; returns undefined if its file has no usable value at the
   * moment. The function itself is undefined if the secret does not come from a file and
   * thus never changes.
   */
  readonly read: (() => Value | undefined) | undefined;
}

/** The state of a secret, for the process's watcher. */
export interface SecretState {
  readonly name: string;
  /**
   * How long the secret has been refused continuously; undefined if it was last accepted,
   * or never refused.
   */
  refusedForMs(): number | undefined;
}

/**
 * Keeps a secret, and reads its file again only when a service refuses the current value.
 * A new secret is often in its file before the service accepts it; until then, the old
 * one stays valid.
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

  /**
   * Advice for messages about a refused secret: the setting to check, and whether its
   * file was read again.
   */
  get advice(): string {
    return this.isFromFile
      ? `check ${this.name}, which was read again and has not changed`
      : `check ${this.name}`;
  }

  /**
   * The current secret: the same object until it changes, so that callers can report
   * which secret was refused.
   */
  get current(): Value {
    return this.#current;
  }

  /**
   * Call this when a service has refused a secret.
   * @param refused the object that was `current` when the secret was sent
   * @returns whether a different secret is available now, so that another attempt is
   *   worthwhile
   */
  renew(refused: Value): boolean {
    this.#refusedSinceMs ??= performance.now();
    return this.readAgain(refused);
  }

  /**
   * Like `renew`, for a failure that may have a cause other than the secret. It does not
   * count as a refusal.
   */
  readAgain(refused: Value): boolean {
    // Another attempt has read the file in the meantime.
    if (this.#current !== refused) return true;
    const read = this.#origin.read?.();
    if (read === undefined || isDeepStrictEqual(read, refused)) return false;
    this.#current = read;
    return true;
  }

  /** Call this when a service has accepted the secret. */
  accept(): void {
    this.forgetRefusal();
  }

  /**
   * Call this when it is no longer known whether the service refuses the secret, for
   * example because the service has become unreachable.
   */
  forgetRefusal(): void {
    this.#refusedSinceMs = undefined;
  }

  refusedForMs(): number | undefined {
    return this.#refusedSinceMs === undefined
      ? undefined
      : performance.now() - this.#refusedSinceMs;
  }
}
