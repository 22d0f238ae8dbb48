/**
 * The import graph as the parser sees it: static imports, re-exports and dynamic imports
 * of every module.
 */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { parseSync } from 'oxc-parser';

export interface Import {
  /**
   * A path from the root for our own modules; a package name (`pg`, `node:fs`) for
   * others.
   */
  readonly target: string;
  readonly isOwn: boolean;
  /** True if the import is erased before anything runs. */
  readonly isType: boolean;
}

export interface Module {
  /** The path from the root, with forward slashes. */
  readonly path: string;
  readonly imports: readonly Import[];
  /** Expressions of dynamic imports whose target is known only at run time. */
  readonly computed: readonly string[];
}

/**
 * Lists the modules below the folders: every `.ts` file, and the `.js` files that the
 * command line and the console share.
 * @returns paths from the root, sorted
 */
function listModules(root: string, folders: readonly string[]): string[] {
  return [...folders.map((folder) => `${folder}/**/*.ts`), 'src/format/*.js']
    .flatMap((pattern) => globSync(pattern, { cwd: root }))
    .toSorted();
}

/**
 * Reads every module below the folders.
 * @throws Error if a file does not parse
 */
export function readImportGraph(
  root: string,
  folders: readonly string[],
): Module[] {
  return listModules(root, folders).map((path) => readModule(root, path));
}

function readModule(root: string, path: string): Module {
  const text = readFileSync(join(root, path), 'utf8');
  const { module, errors } = parseSync(path, text);
  if (errors.length > 0)
    throw new Error(`${path} does not parse: ${errors[0]?.message}`);
  const imports: Import[] = [];
  const computed: string[] = [];
  const add = (specifier: string, isType: boolean): void => {
    imports.push(resolveImport(root, path, specifier, isType));
  };
  for (const { moduleRequest, start } of module.staticImports) {
    add(moduleRequest.value, /^import\s+type\b/.test(text.slice(start)));
  }
  for (const { entries } of module.staticExports) {
    for (const { moduleRequest, isType } of entries) {
      if (moduleRequest !== null) add(moduleRequest.value, isType);
    }
  }
  for (const { moduleRequest } of module.dynamicImports) {
    const written = text.slice(moduleRequest.start, moduleRequest.end);
    const literal = /^['"`]([^'"`$]+)['"`]$/.exec(written)?.[1];
    if (literal === undefined) computed.push(written);
    else add(literal, false);
  }
  return { path, imports, computed };
}

function resolveImport(
  root: string,
  from: string,
  specifier: string,
  isType: boolean,
): Import {
  if (!specifier.startsWith('.')) {
    const packageName = specifier.startsWith('node:')
      ? specifier
      : packageOf(specifier);
    return { target: packageName, isOwn: false, isType };
  }
  const target = relative(
    root,
    join(root, dirname(from), specifier),
  ).replaceAll('\\', '/');
  return { target, isOwn: true, isType };
}

function packageOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}

/**
 * Finds cycles.
 * @returns each cycle as the list of its modules; imports of types count only with
 *   `withTypes`
 */
export function findCycles(
  graph: readonly Module[],
  withTypes: boolean,
): string[][] {
  const byPath = new Map(graph.map((module) => [module.path, module]));
  const state = new Map<string, 'open' | 'done'>();
  const trail: string[] = [];
  const cycles: string[][] = [];
  const visit = (module: Module): void => {
    state.set(module.path, 'open');
    trail.push(module.path);
    for (const { target, isOwn, isType } of module.imports) {
      const next =
        isOwn && (withTypes || !isType) ? byPath.get(target) : undefined;
      if (next === undefined) continue;
      if (state.get(next.path) === 'open')
        cycles.push([...trail.slice(trail.indexOf(next.path)), next.path]);
      if (state.get(next.path) === undefined) visit(next);
    }
    trail.pop();
    state.set(module.path, 'done');
  };
  for (const module of graph)
    if (state.get(module.path) === undefined) visit(module);
  return cycles;
}
