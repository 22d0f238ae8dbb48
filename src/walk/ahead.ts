/**
 * Pulls from an iterator one item ahead: while an item is worked on, the next is under way, and no more
 * than that. So memory is bounded, and so is what a crash costs.
 */
export class Ahead<Item> implements AsyncDisposable {
  readonly #iterator: AsyncGenerator<Item, void>;
  readonly #stop: AbortController;
  #next: Promise<IteratorResult<Item, void>>;

  /** @param stop aborted when the rest is not wanted any more; the iterator must end on it */
  constructor(iterator: AsyncGenerator<Item, void>, stop: AbortController) {
    this.#iterator = iterator;
    this.#stop = stop;
    this.#next = this.#pull();
  }

  /** Settles when the next item is there. */
  async arrived(): Promise<void> {
    await this.#next;
  }

  /** The next item, and the one behind it is pulled; undefined at the end. */
  async take(): Promise<Item | undefined> {
    const { done, value } = await this.#next;
    if (done === true) return undefined;
    if (!this.#stop.signal.aborted) this.#next = this.#pull();
    return value;
  }

  #pull(): Promise<IteratorResult<Item, void>> {
    const pulled = this.#iterator.next();
    // Whoever takes it gets the error; nobody does where the rest was not wanted.
    pulled.catch(() => undefined);
    return pulled;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#next.catch(() => undefined);
    await this.#iterator.return();
  }
}
