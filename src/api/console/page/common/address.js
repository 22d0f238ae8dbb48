// Keeps the reader's choices in the page's address, so that a link restores them.

/**
 * Fills a field from the address, and writes the reader's choices into the address. A
 * value that is not one of a list's options is ignored.
 * @param usual the default value, which the address omits
 */
export function keepInAddress(name, field, usual = '') {
  const given = new URLSearchParams(location.search).get(name);
  const isOffered =
    field.options === undefined ||
    [...field.options].some(({ value }) => value === given);
  if (given !== null && isOffered) field.value = given;
  field.addEventListener(field.options === undefined ? 'input' : 'change', () =>
    writeAddress(name, field.value === usual ? '' : field.value),
  );
}

export function writeAddress(name, value) {
  const query = new URLSearchParams(location.search);
  if (value === '') query.delete(name);
  else query.set(name, value);
  const text = query.size === 0 ? '' : `?${query.toString()}`;
  history.replaceState(
    undefined,
    '',
    `${location.pathname}${text}${location.hash}`,
  );
}
