/** What is accepted as a token of the API, and as the names that it answers to. */

const TOKEN_CHARACTERS_MIN = 16;
const TOKEN_CHARACTERS_DIFFERENT_MIN = 8;
/** How the tokens of published examples begin: whoever scans the network tries them first. */
const EXAMPLE_TOKEN = /^(?:change[-_ ]?(?:this|me|it)|your[-_ ]|example|at-least)/i;
export const TOKEN = `at least ${TOKEN_CHARACTERS_MIN} printable characters, ${TOKEN_CHARACTERS_DIFFERENT_MIN} of them different, and no example; for instance what 'openssl rand -hex 32' prints`;

/** Long and mixed enough that guessing over the network is hopeless. */
export function token(given: string): string | undefined {
  const isLong = /^[\x21-\x7e]+$/.test(given) && given.length >= TOKEN_CHARACTERS_MIN;
  const isMixed = new Set(given).size >= TOKEN_CHARACTERS_DIFFERENT_MIN;
  return isLong && isMixed && !EXAMPLE_TOKEN.test(given) ? given : undefined;
}

const HOST_NAME = /^(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?$|^[0-9a-f:]+$/i;

export function hostNames(given: string): readonly string[] | undefined {
  const names = given.split(',').map((name) =>
    name
      .trim()
      .toLowerCase()
      .replace(/^\[(.*)\]$/, '$1'),
  );
  return names.every((name) => HOST_NAME.test(name)) ? [...new Set(names)] : undefined;
}
