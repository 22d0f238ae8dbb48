/** What is accepted as a token of the API, and as the names that it answers to. */
import { type Form, listOf } from './value-forms.ts';

const CHARACTERS_MIN = 16;
const CHARACTERS_DIFFERENT_MIN = 8;
/** How the tokens of published examples begin: whoever scans the network tries them first. */
const EXAMPLE = /^(?:change[-_ ]?(?:this|me|it)|your[-_ ]|example|at-least)/i;

/** Long and mixed enough that guessing over the network is hopeless. */
export const token: Form<string> = {
  accepted: `at least ${CHARACTERS_MIN} printable characters, ${CHARACTERS_DIFFERENT_MIN} of them different, and no example; for instance what 'openssl rand -hex 32' prints`,
  parse: (given) => {
    const isLong = /^[\x21-\x7e]+$/.test(given) && given.length >= CHARACTERS_MIN;
    const isMixed = new Set(given).size >= CHARACTERS_DIFFERENT_MIN;
    return isLong && isMixed && !EXAMPLE.test(given) ? given : undefined;
  },
};

const HOST_NAME = /^(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?$|^[0-9a-f:]+$/;

export const hostNames = listOf(
  'host names or addresses, separated by commas; *.name for every name below one',
  (given) => {
    const name = given.toLowerCase().replace(/^\[(.*)\]$/, '$1');
    return HOST_NAME.test(name) ? name : undefined;
  },
);
