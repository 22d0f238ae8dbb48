/**
 * Pulls from an iterator one item ahead: the next is under way while the first is being worked on, and
 * never more than that, so memory is bounded and a crash costs at most two pages.
 */
const OUTSTANDING_MAX = 2;

export class Ahead<Item> implements AsyncDisposable {
  readonly #iterator: AsyncGenerator<Item, void>;
  readonly #stop: AbortController;
  readonly #outstanding: Promise<IteratorResult<Item, void>>[] = [];

  /** @param stop aborted when the rest is not wanted any more; the iterator must end on it */
  constructor(iterator: AsyncGenerator<Item, void>, stop: AbortController) {
    this.#iterator = iterator;
    this.#stop = stop;
    this.#pull();
  }

  /** The first item that was not released yet; undefined at the end. The same until then. */
  async peek(): Promise<Item | undefined> {
    const result = await this.#outstanding[0];
    return result === undefined || result.done === true ? undefined : result.value;
  }

  /** The first item is done with. */
  release(): void {
    void this.#outstanding.shift();
    this.#pull();
  }

  #pull(): void {
    if (this.#outstanding.length >= OUTSTANDING_MAX || this.#stop.signal.aborted) return;
    const pulled = this.#iterator.next();
    this.#outstanding.push(pulled);
    void this.#pullBehind(pulled);
  }

  async #pullBehind(pulled: Promise<IteratorResult<Item, void>>): Promise<void> {
    // Whoever peeks gets an error; nobody does where the rest was not wanted.
    const result = await pulled.catch(() => undefined);
    if (result?.done === false) this.#pull();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.allSettled(this.#outstanding);
    await this.#iterator.return();
  }
}
