/**
 * Stands in for an object whose methods lie on its class: the overrides win, everything
 * else goes to the original. A spread would lose the methods.
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
