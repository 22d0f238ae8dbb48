/**
 * Replaces methods of an object: the overrides win, and everything else goes to the
 * original. A spread would lose methods that are defined on a class.
 */
export function withOverrides<Subject extends object>(
  subject: Subject,
  overrides: Partial<Subject>,
): Subject {
  return new Proxy(subject, {
    get(target, name) {
      if (Object.hasOwn(overrides, name)) return Reflect.get(overrides, name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
