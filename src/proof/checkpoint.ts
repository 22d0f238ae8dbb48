/**
 * The checkpoint of a log (C2SP `tlog-checkpoint`): the name of the log, its number of
 * entries and the hash of all of them, as a signed note.
 */
import { PermanentError } from '../errors/errors.ts';
import { HASH_BYTES } from './merkle.ts';
import {
  openNote,
  type SignerKey,
  signNote,
  type VerifierKey,
} from './signed-note.ts';

export interface Checkpoint {
  /** The name of the log, which is the name of its key. */
  readonly origin: string;
  /** How many nights are in the log. */
  readonly size: number;
  /** The hash of all of its entries (RFC 9162). */
  readonly root: Buffer;
}

export function signCheckpoint(
  { size, root }: Omit<Checkpoint, 'origin'>,
  key: SignerKey,
): string {
  return signNote(`${key.name}\n${size}\n${root.toString('base64')}\n`, key);
}

/**
 * Checks the signature of a checkpoint and parses it.
 * @param note a checkpoint with its signatures
 * @throws PermanentError `PROOF_SIGNATURE_INVALID` or `PROOF_CHECKPOINT_INVALID`
 */
export function openCheckpoint(note: string, key: VerifierKey): Checkpoint {
  const checkpoint = decodeCheckpoint(openNote(note, key));
  if (checkpoint.origin !== key.name)
    throw invalid(
      `it belongs to the log ${checkpoint.origin}, but the key belongs ` +
        `to ${key.name}`,
    );
  return checkpoint;
}

/**
 * Parses a checkpoint without checking its signatures.
 * @param text the checkpoint, with or without its signatures
 * @throws PermanentError `PROOF_CHECKPOINT_INVALID`
 */
export function decodeCheckpoint(text: string): Checkpoint {
  const [origin = '', size = '', rootText = ''] = text.split('\n');
  const root = Buffer.from(rootText, 'base64');
  const isWhole =
    origin !== '' &&
    /^(?:0|[1-9]\d{0,14})$/.test(size) &&
    root.length === HASH_BYTES &&
    root.toString('base64') === rootText;
  if (!isWhole)
    throw invalid('its three lines are not a name, a size and a hash');
  return { origin, size: Number(size), root };
}

function invalid(state: string): PermanentError {
  return new PermanentError(
    `Cannot read the checkpoint: ${state}; fetch it again, or restore it from a copy`,
    { code: 'PROOF_CHECKPOINT_INVALID' },
  );
}
