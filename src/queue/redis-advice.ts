/** Warnings about a Redis that holds queues, from its INFO. */

/** Below 5 BullMQ refuses to work, below 6.2 it advises against it. */
const VERSION_MIN = { major: 6, minor: 2 };

/**
 * A Redis that is too old, evicts keys, or forgets them at a restart.
 * @param info the text of INFO; Valkey and Dragonfly answer it as Redis does
 */
export function redisAdvice(info: string): readonly string[] {
  const advice: string[] = [];
  const version = /^redis_version:((\d+)\.(\d+)\S*)/m.exec(info);
  const [major, minor] = [Number(version?.[2]), Number(version?.[3])];
  if (major < VERSION_MIN.major || (major === VERSION_MIN.major && minor < VERSION_MIN.minor)) {
    const needed = `${VERSION_MIN.major}.${VERSION_MIN.minor}`;
    advice.push(`Redis is ${version?.[1] ?? ''}: BullMQ wants ${needed} at least; use 7 or later`);
  }
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (policy !== undefined && policy !== 'noeviction') {
    advice.push(`maxmemory-policy is ${policy}: keys of jobs may be evicted; set it to noeviction`);
  }
  if (/^aof_enabled:0/m.test(info)) {
    advice.push(
      'appendonly is off: a restart forgets queued jobs until they are taken up again; set appendonly yes',
    );
  }
  return advice;
}
