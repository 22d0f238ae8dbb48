/** Times as the service writes them: without trailing zeros, in the zone of the node and its database. */
import { formatInstant, type Micros } from '../../core/time.ts';

/** `2023-05-01T10:00:00.1234Z`, as Go writes it; `zoneMinutes` is east of UTC. */
export function rfc3339Nano(instant: Micros, zoneMinutes: number): string {
  const { date, clock } = localParts(instant, zoneMinutes);
  return `${date}T${clock}${zoneMinutes === 0 ? 'Z' : zoneText(zoneMinutes)}`;
}

/** `2023-05-01 10:00:00.1234+00`, as Postgres writes a timestamptz: minutes of the zone only if any. */
export function timestamptz(instant: Micros, zoneMinutes: number): string {
  const { date, clock } = localParts(instant, zoneMinutes);
  return `${date} ${clock}${zoneText(zoneMinutes).replace(':00', '')}`;
}

function localParts(instant: Micros, zoneMinutes: number): { date: string; clock: string } {
  const local = formatInstant(instant + BigInt(zoneMinutes) * 60_000_000n);
  const fraction = local.slice(20, 26).replace(/0+$/, '');
  return { date: local.slice(0, 10), clock: local.slice(11, 19) + (fraction === '' ? '' : `.${fraction}`) };
}

function zoneText(zoneMinutes: number): string {
  const minutes = Math.abs(zoneMinutes);
  const two = (value: number): string => value.toString().padStart(2, '0');
  return `${zoneMinutes < 0 ? '-' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}
