/** The certificate that a client authenticates with, and its key. */

/** Both in PEM. */
export interface ClientCertificate {
  readonly cert: string;
  readonly key: string;
}

/** Returns undefined unless both halves of the pair are given. */
export function certificateOf(
  cert: string | undefined,
  key: string | undefined,
): ClientCertificate | undefined {
  return cert === undefined || key === undefined ? undefined : { cert, key };
}
