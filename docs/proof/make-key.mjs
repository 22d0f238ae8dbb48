// Makes a key for PROOF_KEY_FILE, with Node alone: node make-key.mjs NAME > proof.key
// NAME is the name of the log and of its key, without spaces and without +.
import { createHash, generateKeyPairSync } from 'node:crypto';

const [name = ''] = process.argv.slice(2);
if (!/^[^\s+]{1,200}$/u.test(name)) throw new Error('give a name for the log');
const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const secret = privateKey
  .export({ format: 'der', type: 'pkcs8' })
  .subarray(-32);
const open = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
const ed25519 = Buffer.of(1);
const id = createHash('sha256')
  .update(`${name}\n`)
  .update(ed25519)
  .update(open);
const short = id.digest('hex').slice(0, 8);
const text = Buffer.concat([ed25519, secret]).toString('base64');
process.stdout.write(`PRIVATE+KEY+${name}+${short}+${text}\n`);
