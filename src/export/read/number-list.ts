/** A list of numbers that passes between threads as a block of memory, not one by one. */
export class NumberList {
  #numbers = new Float64Array(64);
  #count = 0;

  push2(first: number, second: number): void {
    if (this.#count + 2 > this.#numbers.length) this.#grow();
    this.#numbers[this.#count] = first;
    this.#numbers[this.#count + 1] = second;
    this.#count += 2;
  }

  push3(first: number, second: number, third: number): void {
    if (this.#count + 3 > this.#numbers.length) this.#grow();
    this.#numbers[this.#count] = first;
    this.#numbers[this.#count + 1] = second;
    this.#numbers[this.#count + 2] = third;
    this.#count += 3;
  }

  /** A copy of exactly its length. */
  values(): Float64Array {
    return this.#numbers.slice(0, this.#count);
  }

  #grow(): void {
    const numbers = new Float64Array(this.#numbers.length * 2);
    numbers.set(this.#numbers);
    this.#numbers = numbers;
  }
}
