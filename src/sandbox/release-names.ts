/** The releases of the service whose exports the sandbox can serve; apart, so that naming them loads nothing. */
export const RELEASE_NAMES = ['0.71.4', '0.71.6', '0.73'] as const;
export type ReleaseName = (typeof RELEASE_NAMES)[number];
