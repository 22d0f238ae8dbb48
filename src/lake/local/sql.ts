/** A string as a SQL literal. */
export function literal(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** A list of strings as SQL. */
export function literals(values: readonly string[]): string {
  return `[${values.map(literal).join(', ')}]`;
}

/** Amounts below this can be added ten thousand million times before 38 digits run out. */
const SAFE_AMOUNT = '9999999999999999999999999999';

/**
 * `exact_sum(quantity, quantity_text)`: the sum to the last digit, whatever its size; 0 of nothing. The rare
 * amounts that DECIMAL cannot add up safely are added as text-backed integers, the others at full speed.
 */
export const EXACT_SUM = `create macro exact_sum(amount, amount_text) as (
  cast(cast(coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then amount end), 0) as varchar) as bignum)
  + coalesce(sum(case when amount between -${SAFE_AMOUNT} and ${SAFE_AMOUNT} then null
      else cast(coalesce(cast(amount as varchar), amount_text) as bignum) end), cast('0' as bignum)))`;
