/**
 * Finds every statement that the sources declare with `statement(…)`, and derives its
 * text without running the code. As in Kysely, fragments made with `sql` are inlined, and
 * every other value becomes a parameter. A condition yields two variants of the text, one
 * for each branch.
 */
import { globSync, readFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { parseSync } from 'oxc-parser';
import { selectText } from '../../src/postgres/statement.ts';

export interface DeclaredStatement {
  /** The location of the statement: `src/catalog/leases.ts:61`. */
  readonly place: string;
  /** The declared type of each column, such as `text?`, by name. */
  readonly columns: Readonly<Record<string, string>>;
  /** The texts that result from its conditions, with `$1`, `$2`, … */
  readonly variants: readonly string[];
}

/** A node of the syntax tree, with its parent. */
interface Node {
  readonly type: string;
  readonly start: number;
  readonly [key: string]: unknown;
}

interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly program: Node;
  readonly parents: ReadonlyMap<Node, Node>;
}

/** The values of the parameters of functions that are being inlined. */
interface Bindings {
  readonly values: ReadonlyMap<string, Bound>;
}

interface Bound {
  readonly node: Node;
  readonly file: SourceFile;
  readonly bindings: Bindings;
}

/** The declaration that a name refers to. */
type Found =
  | { readonly kind: 'parameter'; readonly node: Node }
  | ({ readonly kind: 'value' } & Bound);

const NO_BINDINGS: Bindings = { values: new Map() };
const PARAMETER = '\u0000';
const VARIANTS_MAX = 96;
const FRAGMENT_TYPE = /RawBuilder|Sql\b|Fragment\b/;

export function findStatements(
  root: string,
  patterns: readonly string[],
): DeclaredStatement[] {
  const files = new Map<string, SourceFile>();
  return globSync([...patterns], { cwd: root })
    .toSorted()
    .flatMap((path) =>
      statementsIn(new Reader(files), load(files, resolve(root, path)), root),
    );
}

function statementsIn(
  reader: Reader,
  file: SourceFile,
  root: string,
): DeclaredStatement[] {
  const tagged = [...file.parents.keys()].filter(
    (node) =>
      node.type === 'TaggedTemplateExpression' &&
      isCallOf(child(node, 'tag'), 'statement'),
  );
  return tagged.map((node) => {
    const line = file.text.slice(0, node.start).split('\n').length;
    const place = `${relative(root, file.path)}:${line}`;
    try {
      const [declared] = list(child(node, 'tag'), 'arguments');
      return {
        place,
        columns: declared === undefined ? {} : reader.columns(declared, file),
        variants: reader.variants(child(node, 'quasi'), file).map(numbered),
      };
    } catch (error) {
      throw new Error(`Cannot work out the statement at ${place}`, {
        cause: error,
      });
    }
  });
}

/** Replaces the marks of parameters with `$1`, `$2`, … */
function numbered(text: string): string {
  let count = 0;
  return text.replaceAll(PARAMETER, () => {
    count += 1;
    return `$${count}`;
  });
}

/**
 * Thrown at a constant such as `TABLES[list]`, whose value depends on a name, if no name
 * has been chosen yet for the constants that have these keys.
 */
class Undecided extends Error {
  readonly keys: readonly string[];

  constructor(keys: readonly string[]) {
    super(`one of ${keys.join(', ')} has to be chosen`);
    this.keys = keys;
  }
}

class Reader {
  readonly #files: Map<string, SourceFile>;
  /**
   * The name chosen for all constants that have the same keys, because `TABLES[list]` and
   * `KEYS[list]` refer to the same list.
   */
  #chosen: ReadonlyMap<string, string> = new Map();

  constructor(files: Map<string, SourceFile>) {
    this.#files = files;
  }

  /**
   * @returns every variant of a statement's text; within one variant, a name always has
   *   the same value
   */
  variants(quasi: Node, file: SourceFile): string[] {
    const found: string[] = [];
    const open: ReadonlyMap<string, string>[] = [new Map()];
    for (;;) {
      const chosen = open.pop();
      if (chosen === undefined) return [...new Set(found)];
      this.#chosen = chosen;
      try {
        found.push(...this.template(quasi, file, NO_BINDINGS));
      } catch (error) {
        if (!(error instanceof Undecided)) throw error;
        const { keys } = error;
        open.push(
          ...keys
            .map((key) => new Map([...chosen, [keys.join(), key]]))
            .toReversed(),
        );
      }
    }
  }

  /**
   * @returns the declared type of each column, from an object literal or a constant that
   *   contains one
   */
  columns(node: Node, file: SourceFile): Record<string, string> {
    const value = unwrap(node);
    if (value.type === 'Identifier') {
      const found = this.#find(name(value), value, file, NO_BINDINGS);
      if (found?.kind !== 'value')
        throw new Error(`cannot find the columns ${name(value)}`);
      return this.columns(found.node, found.file);
    }
    if (value.type !== 'ObjectExpression')
      throw new Error(`columns are a ${value.type}`);
    const entries = list(value, 'properties').flatMap(
      (property): [string, string][] => {
        if (property.type === 'SpreadElement') {
          return Object.entries(
            this.columns(child(property, 'argument'), file),
          );
        }
        return [[keyOf(property), columnText(child(property, 'value'))]];
      },
    );
    return Object.fromEntries(entries);
  }

  /** @returns every text that a template with its interpolations can have */
  template(quasi: Node, file: SourceFile, bindings: Bindings): string[] {
    const texts = list(quasi, 'quasis').map((part) => cooked(part));
    const parts = list(quasi, 'expressions').map(
      (node) => this.#fragment(node, file, bindings) ?? [PARAMETER],
    );
    let variants = [texts[0] ?? ''];
    for (const [index, part] of parts.entries()) {
      const after = texts[index + 1] ?? '';
      variants = variants.flatMap((before) =>
        part.map((own) => before + own + after),
      );
      if (variants.length > VARIANTS_MAX)
        throw new Error('the statement has too many variants');
    }
    return variants;
  }

  /**
   * @returns undefined if the value is a parameter of the statement, and not a part of
   *   its text
   */
  #fragment(
    node: Node,
    file: SourceFile,
    bindings: Bindings,
  ): string[] | undefined {
    const value = unwrap(node);
    switch (value.type) {
      case 'TaggedTemplateExpression':
        return name(unwrap(child(value, 'tag'))) === 'sql'
          ? this.template(child(value, 'quasi'), file, bindings)
          : undefined;
      case 'ConditionalExpression': {
        const first = child(value, 'consequent');
        const second = child(value, 'alternate');
        const isChosen = this.#isChosen(child(value, 'test'));
        if (isChosen === undefined)
          return this.#either(first, second, file, bindings);
        return this.#fragment(isChosen ? first : second, file, bindings);
      }
      case 'LogicalExpression':
        return this.#either(
          child(value, 'left'),
          child(value, 'right'),
          file,
          bindings,
        );
      case 'CallExpression':
        return this.#call(value, file, bindings);
      case 'Identifier':
        return this.#named(value, file, bindings);
      case 'MemberExpression':
        return this.#member(value, file, bindings, (...found) =>
          this.#fragment(...found),
        );
      default:
        return undefined;
    }
  }

  /**
   * Whether a condition such as `list === 'parties'` holds for the chosen names.
   * @returns undefined if the condition does not depend on a chosen name
   */
  #isChosen(condition: Node): boolean | undefined {
    const value = unwrap(condition);
    if (value.type !== 'BinaryExpression' || value['operator'] !== '===')
      return undefined;
    const compared = unwrap(child(value, 'right'))['value'];
    for (const [keys, key] of this.#chosen)
      if (keys.split(',').includes(String(compared))) return key === compared;
    return undefined;
  }

  #either(
    first: Node,
    second: Node,
    file: SourceFile,
    bindings: Bindings,
  ): string[] | undefined {
    const one = this.#fragment(first, file, bindings);
    const two = this.#fragment(second, file, bindings);
    if (one === undefined && two === undefined) return undefined;
    return [...(one ?? [PARAMETER]), ...(two ?? [PARAMETER])];
  }

  #named(
    identifier: Node,
    file: SourceFile,
    bindings: Bindings,
  ): string[] | undefined {
    const found = this.#find(name(identifier), identifier, file, bindings);
    if (found?.kind === 'value')
      return this.#fragment(found.node, found.file, found.bindings);
    if (found?.node.type === 'AssignmentPattern') {
      return this.#fragment(child(found.node, 'right'), file, bindings);
    }
    // The fragment is a parameter whose text only the caller knows. Any condition can
    // stand in for it.
    if (found !== undefined && FRAGMENT_TYPE.test(annotation(found.node, file)))
      return ['true'];
    return undefined;
  }

  #call(
    call: Node,
    file: SourceFile,
    bindings: Bindings,
  ): string[] | undefined {
    const callee = unwrap(child(call, 'callee'));
    const given = list(call, 'arguments');
    if (isCallOf(call, 'selectList')) return [this.#selectList(given, file)];
    if (
      callee.type === 'MemberExpression' &&
      name(child(callee, 'object')) === 'sql'
    ) {
      return this.#builtIn(
        name(child(callee, 'property')),
        given,
        file,
        bindings,
      );
    }
    return this.#inlined(callee, given, file, bindings, (...body) =>
      this.#fragment(...body),
    );
  }

  /** Returns the text of `selectList(COLUMNS, { name: 'an expression' })`. */
  #selectList([columns, expressions]: readonly Node[], file: SourceFile) {
    if (columns === undefined) throw new Error('selectList without columns');
    return selectText(
      Object.keys(this.columns(columns, file)),
      expressions === undefined ? {} : this.columns(expressions, file),
    );
  }

  /** Returns the text of `sql.raw`, `sql.lit`, `sql.id`, `sql.table` or `sql.ref`. */
  #builtIn(
    kind: string,
    given: readonly Node[],
    file: SourceFile,
    bindings: Bindings,
  ): string[] {
    const values = given.map((node) => this.#strings(node, file, bindings));
    const [first] = values;
    if (kind === 'raw') {
      if (first === undefined)
        throw new Error('cannot work out what sql.raw is given');
      return first;
    }
    if (kind === 'lit')
      return (first ?? ['unknown']).map(
        (text) => `'${text.replaceAll("'", "''")}'`,
      );
    return cross(values.map((texts) => texts ?? ['unknown'])).map((path) =>
      path
        .flatMap((text) => text.split('.'))
        .map((part) => `"${part}"`)
        .join('.'),
    );
  }

  /** Follows a call to what the function returns. */
  #inlined<Result>(
    callee: Node,
    given: readonly Node[],
    file: SourceFile,
    bindings: Bindings,
    read: (
      node: Node,
      file: SourceFile,
      bindings: Bindings,
    ) => Result[] | undefined,
  ): Result[] | undefined {
    if (callee.type === 'MemberExpression') {
      return this.#member(callee, file, bindings, (node, of, within) =>
        this.#returned(
          { node, file: of, bindings: within },
          given,
          { file, bindings },
          read,
        ),
      );
    }
    if (callee.type !== 'Identifier') return undefined;
    const found = this.#find(name(callee), callee, file, bindings);
    if (found?.kind !== 'value') return undefined;
    return this.#returned(found, given, { file, bindings }, read);
  }

  #returned<Result>(
    called: Bound,
    given: readonly Node[],
    caller: { readonly file: SourceFile; readonly bindings: Bindings },
    read: (
      node: Node,
      file: SourceFile,
      bindings: Bindings,
    ) => Result[] | undefined,
  ): Result[] | undefined {
    const fn = unwrap(called.node);
    if (!isFunction(fn)) return undefined;
    const values = new Map(called.bindings.values);
    for (const [index, parameter] of list(fn, 'params').entries()) {
      const hasDefault = parameter.type === 'AssignmentPattern';
      const target = hasDefault ? child(parameter, 'left') : parameter;
      if (target.type !== 'Identifier') continue;
      const argument = given[index];
      if (argument !== undefined)
        values.set(name(target), { node: argument, ...caller });
      else if (hasDefault) {
        values.set(name(target), {
          ...called,
          node: child(parameter, 'right'),
        });
      }
    }
    const results = returnsOf(fn, called.file).map((node) =>
      read(node, called.file, { values }),
    );
    if (results.every((result) => result === undefined)) return undefined;
    return results.flatMap((result) => result ?? []);
  }

  /**
   * Follows `CONSTANT.name` to its value, and `CONSTANT[name]` to the value of the chosen
   * name.
   */
  #member<Result>(
    member: Node,
    file: SourceFile,
    bindings: Bindings,
    read: (
      node: Node,
      file: SourceFile,
      bindings: Bindings,
    ) => Result[] | undefined,
  ): Result[] | undefined {
    const object = unwrap(child(member, 'object'));
    if (object.type !== 'Identifier') return undefined;
    const found = this.#find(name(object), object, file, bindings);
    if (found?.kind !== 'value') return undefined;
    const holder = unwrap(found.node);
    if (holder.type !== 'ObjectExpression') return undefined;
    const properties = list(holder, 'properties').filter(
      ({ type }) => type === 'Property',
    );
    const key =
      member['computed'] === true
        ? this.#choose(properties.map(keyOf))
        : name(child(member, 'property'));
    const results = properties
      .filter((property) => keyOf(property) === key)
      .map((property) =>
        read(child(property, 'value'), found.file, found.bindings),
      );
    if (results.every((result) => result === undefined)) return undefined;
    return results.flatMap((result) => result ?? []);
  }

  #choose(keys: readonly string[]): string {
    const chosen = this.#chosen.get(keys.join());
    if (chosen === undefined) throw new Undecided(keys);
    return chosen;
  }

  /** @returns every string that an expression can be; undefined if it depends on data */
  #strings(
    node: Node,
    file: SourceFile,
    bindings: Bindings,
  ): string[] | undefined {
    const value = unwrap(node);
    const again = (next: Node): string[] | undefined =>
      this.#strings(next, file, bindings);
    switch (value.type) {
      case 'Literal':
        return [String(value['value'])];
      case 'TemplateLiteral': {
        const texts = list(value, 'quasis').map((part) => cooked(part));
        const parts = list(value, 'expressions').map(again);
        if (parts.includes(undefined)) return undefined;
        return cross(parts as string[][]).map((chosen) =>
          texts.map((text, index) => text + (chosen[index] ?? '')).join(''),
        );
      }
      case 'ConditionalExpression':
        return [
          ...(again(child(value, 'consequent')) ?? []),
          ...(again(child(value, 'alternate')) ?? []),
        ];
      case 'Identifier': {
        const found = this.#find(name(value), value, file, bindings);
        if (found?.kind === 'value')
          return this.#strings(found.node, found.file, found.bindings);
        return found === undefined
          ? undefined
          : literalUnion(annotation(found.node, file));
      }
      case 'MemberExpression':
        return this.#member(value, file, bindings, (...found) =>
          this.#strings(...found),
        );
      case 'CallExpression':
        return this.#inlined(
          unwrap(child(value, 'callee')),
          list(value, 'arguments'),
          file,
          bindings,
          (...body) => this.#strings(...body),
        );
      default:
        return undefined;
    }
  }

  /**
   * Finds a name in the scopes around `from`, in the bindings, and in imports of our own
   * files.
   */
  #find(
    wanted: string,
    from: Node,
    file: SourceFile,
    bindings: Bindings,
  ): Found | undefined {
    let scope: Node | undefined = from;
    while (scope !== undefined) {
      const found = declaredIn(scope, wanted);
      if (found?.kind === 'parameter') {
        const bound = bindings.values.get(wanted);
        return bound === undefined ? found : { kind: 'value', ...bound };
      }
      if (found?.kind === 'declared')
        return { kind: 'value', node: found.node, file, bindings };
      scope = file.parents.get(scope);
    }
    return this.#imported(wanted, file);
  }

  #imported(wanted: string, file: SourceFile): Found | undefined {
    for (const node of list(file.program, 'body')) {
      if (node.type !== 'ImportDeclaration') continue;
      const source = String(child(node, 'source')['value']);
      const specifier = list(node, 'specifiers').find(
        (one) =>
          one.type === 'ImportSpecifier' &&
          name(child(one, 'local')) === wanted,
      );
      if (specifier === undefined || !source.startsWith('.')) continue;
      const target = load(this.#files, resolve(dirname(file.path), source));
      return this.#find(
        name(child(specifier, 'imported')),
        target.program,
        target,
        NO_BINDINGS,
      );
    }
    return undefined;
  }
}

type Declared =
  | { readonly kind: 'parameter'; readonly node: Node }
  | { readonly kind: 'declared'; readonly node: Node };

/**
 * Finds a declaration among the statements of a block, or the parameters of a function.
 */
function declaredIn(scope: Node, wanted: string): Declared | undefined {
  if (isFunction(scope)) {
    const parameter = list(scope, 'params').find((one) =>
      names(one).includes(wanted),
    );
    return parameter && { kind: 'parameter', node: parameter };
  }
  if (scope.type !== 'BlockStatement' && scope.type !== 'Program')
    return undefined;
  for (const statement of list(scope, 'body')) {
    const node =
      statement.type === 'ExportNamedDeclaration' &&
      isNode(statement['declaration'])
        ? statement['declaration']
        : statement;
    if (
      node.type === 'FunctionDeclaration' &&
      name(child(node, 'id')) === wanted
    ) {
      return { kind: 'declared', node };
    }
    if (node.type !== 'VariableDeclaration') continue;
    const declarator = list(node, 'declarations').find((one) =>
      names(child(one, 'id')).includes(wanted),
    );
    if (declarator === undefined) continue;
    const isPlain =
      child(declarator, 'id').type === 'Identifier' &&
      isNode(declarator['init']);
    return isPlain
      ? { kind: 'declared', node: child(declarator, 'init') }
      : { kind: 'parameter', node: child(declarator, 'id') };
  }
  return undefined;
}

/** @returns the values that a function can return */
function returnsOf(fn: Node, file: SourceFile): readonly Node[] {
  const body = child(fn, 'body');
  if (body.type !== 'BlockStatement') return [body];
  return [...file.parents.keys()]
    .filter(
      (node) =>
        node.type === 'ReturnStatement' &&
        isNode(node['argument']) &&
        enclosing(node, file) === fn,
    )
    .map((node) => child(node, 'argument'));
}

function enclosing(node: Node, file: SourceFile): Node | undefined {
  let around = file.parents.get(node);
  while (around !== undefined && !isFunction(around))
    around = file.parents.get(around);
  return around;
}

/** Returns the names that a pattern declares. */
function names(pattern: Node): string[] {
  if (pattern.type === 'Identifier') return [name(pattern)];
  if (pattern.type === 'AssignmentPattern')
    return names(child(pattern, 'left'));
  if (pattern.type === 'RestElement') return names(child(pattern, 'argument'));
  if (pattern.type === 'ObjectPattern') {
    return list(pattern, 'properties').flatMap((property) =>
      property.type === 'RestElement'
        ? names(property)
        : names(child(property, 'value')),
    );
  }
  if (pattern.type === 'ArrayPattern')
    return list(pattern, 'elements').flatMap(names);
  return [];
}

/** @returns the texts of a type such as `'asc' | 'desc'` */
function literalUnion(text: string): string[] | undefined {
  const found = [...text.matchAll(/'([^']*)'/g)].map(([, value = '']) => value);
  return found.length > 0 ? found : undefined;
}

function columnText(node: Node): string {
  const value = unwrap(node);
  if (value.type === 'Literal') return String(value['value']);
  const [first] = isCallOf(value, 'typed') ? list(value, 'arguments') : [];
  if (first?.type !== 'Literal')
    throw new Error('a column is neither a text nor `typed(…)`');
  return String(first['value']);
}

function annotation(node: Node, file: SourceFile): string {
  const type = node.type === 'AssignmentPattern' ? child(node, 'left') : node;
  const stated = type['typeAnnotation'];
  if (!isNode(stated)) return '';
  return file.text.slice(stated.start, Number(stated['end']));
}

/** Removes the parts of an expression that matter only to types or to awaiting. */
function unwrap(node: Node): Node {
  if (node.type === 'AwaitExpression') return unwrap(child(node, 'argument'));
  const isWrapper =
    /^(?:TSAsExpression|TSSatisfiesExpression|TSNonNullExpression|ParenthesizedExpression|TSInstantiationExpression)$/.test(
      node.type,
    );
  return isWrapper ? unwrap(child(node, 'expression')) : node;
}

function isCallOf(node: Node, wanted: string): boolean {
  return (
    node.type === 'CallExpression' &&
    name(unwrap(child(node, 'callee'))) === wanted
  );
}

function isFunction(node: Node): boolean {
  return /^(?:ArrowFunctionExpression|FunctionExpression|FunctionDeclaration)$/.test(
    node.type,
  );
}

function keyOf(property: Node): string {
  const key = child(property, 'key');
  return key.type === 'Literal' ? String(key['value']) : name(key);
}

function name(node: Node): string {
  return typeof node['name'] === 'string' ? node['name'] : '';
}

function cooked(part: Node): string {
  const value = part['value'] as { readonly cooked: string };
  return value.cooked;
}

function child(node: Node, key: string): Node {
  const value = node[key];
  if (!isNode(value)) throw new Error(`a ${node.type} has no ${key}`);
  return value;
}

function list(node: Node, key: string): readonly Node[] {
  const value = node[key];
  if (!Array.isArray(value))
    throw new Error(`a ${node.type} has no list of ${key}`);
  return value.filter(isNode);
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value;
}

/** Returns every combination of one choice from each list. */
function cross(choices: readonly (readonly string[])[]): string[][] {
  let ways: string[][] = [[]];
  for (const choice of choices)
    ways = ways.flatMap((way) => choice.map((one) => [...way, one]));
  return ways;
}

function load(files: Map<string, SourceFile>, path: string): SourceFile {
  const known = files.get(path);
  if (known !== undefined) return known;
  const text = readFileSync(path, 'utf8');
  const { program } = parseSync(path, text) as unknown as {
    readonly program: Node;
  };
  const parents = new Map<Node, Node>();
  const visit = (node: Node): void => {
    for (const value of Object.values(node)) {
      for (const inner of Array.isArray(value) ? value : [value]) {
        if (!isNode(inner)) continue;
        parents.set(inner, node);
        visit(inner);
      }
    }
  };
  visit(program);
  const file: SourceFile = { path, text, program, parents };
  files.set(path, file);
  return file;
}
