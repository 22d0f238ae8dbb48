/**
 * Work as a table: in each state some work is done, which ends in one of the state's events, which leads to the next
 * state. A state or an event without its entry does not compile.
 */
type Tagged<Kinds, Tag extends string> = {
  [Kind in keyof Kinds]: { readonly [Key in Tag]: Kind } & { readonly data: Kinds[Kind] };
}[keyof Kinds];

/** One of the states, with what it knows. */
export type StateOf<States> = Tagged<States, 'name'>;
/** One of the ways in which the work of a state may end, with what it brings. */
export type EventOf<Events> = Tagged<Events, 'kind'>;

type EventsOf<States> = { readonly [Name in Exclude<keyof States, 'ended'>]: object };

/** The work of each state. */
export type Work<States, Events extends EventsOf<States>> = {
  readonly [Name in keyof EventsOf<States>]: (data: States[Name]) => Promise<EventOf<Events[Name]>>;
};

export type Transitions<States, Events extends EventsOf<States>> = {
  readonly [Name in keyof EventsOf<States>]: {
    readonly [Kind in keyof Events[Name]]: (data: Events[Name][Kind]) => StateOf<States>;
  };
};

/** Works from state to state until the last one. */
export async function runStates<States extends { ended: unknown }, Events extends EventsOf<States>>(
  transitions: Transitions<States, Events>,
  work: Work<States, Events>,
  first: StateOf<States>,
): Promise<States['ended']> {
  // A state's data are those of its name, an event's those of its kind: what the tables are typed by, and this cannot say.
  type Untyped<Result> = Readonly<Record<PropertyKey, (data: unknown) => Result>>;
  const steps = work as Untyped<Promise<{ readonly kind: PropertyKey; readonly data: unknown }>>;
  const table = transitions as Readonly<Record<PropertyKey, Untyped<StateOf<States>>>>;
  let state = first;
  while (state.name !== 'ended') {
    const event = await steps[state.name]?.(state.data);
    const next = event && table[state.name]?.[event.kind]?.(event.data);
    if (next === undefined) throw new RangeError(`no way on from ${String(state.name)}`);
    state = next;
  }
  return state.data;
}
