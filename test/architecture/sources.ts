/** The sources as a graph of files that import each other, read with regular expressions. */
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, posix, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const SRC = fileURLToPath(new URL('../../src', import.meta.url))

export interface Source {
  /** Below the folder that was read, with slashes. */
  readonly path: string
  readonly text: string
  /** The text without comments. */
  readonly code: string
  /** Files of ours that it imports, types included, with paths as above. */
  readonly imports: readonly string[]
  /** Packages that it imports, types included. */
  readonly packages: readonly string[]
}

/** Files that are no code: a table that a script makes, and the licence of its data. */
const DATA = ['query/collation/collation-table.bin', 'query/collation/unicode-license.txt'].map((path) =>
  join(SRC, path),
)

/** Reads every file of a folder but {@link DATA}. @param folder src/, unless another is given */
export async function readSources(folder: string = SRC): Promise<Source[]> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true })
  const paths = files.filter((file) => file.isFile()).map((file) => join(file.parentPath, file.name))
  const code = paths.filter((path) => !DATA.includes(path))
  return Promise.all(
    code.sort().map(async (file) => {
      const path = relative(folder, file).split(sep).join(posix.sep)
      return source(path, await readFile(file, 'utf8'))
    }),
  )
}

/** @param path below the folder that was read */
export function source(path: string, text: string): Source {
  const code = withoutComments(text)
  const specifiers = specifiersOf(code)
  const local = specifiers.filter((specifier) => specifier.startsWith('.'))
  return {
    path,
    text,
    code,
    imports: local.map((specifier) => posix.join(dirname(path), specifier)),
    packages: specifiers.filter((specifier) => !specifier.startsWith('.')).map(packageName),
  }
}

/** `import x from 'y'`, `import 'y'`, `export x from 'y'` and `import('y')`. */
const SPECIFIER = /^(?:import|export)\b[^'"`;]*?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/gm

function specifiersOf(code: string): string[] {
  const found = [...code.matchAll(SPECIFIER)]
  return found.filter(isImport).map(([, fixed, dynamic]) => fixed ?? dynamic ?? '')
}

/** `export const x = 'y'` names no module. */
function isImport([whole]: RegExpMatchArray): boolean {
  return !whole.startsWith('export') || /\bfrom\s*['"]/.test(whole)
}

/** `@scope/name/file` is of the package `@scope/name`. */
function packageName(specifier: string): string {
  return /^(?:@[^/]+\/)?[^/]+/.exec(specifier)?.[0] ?? specifier
}

/** Comments that open a line or follow white space, which no address in a string does. */
function withoutComments(text: string): string {
  return text.replace(/(^|\s)\/\*[\s\S]*?\*\//g, '$1').replace(/(^|\s)\/\/.*$/gm, '$1')
}

/** The layers of architecture.md, "Layers", from left to right; a file belongs to the one with the longest name that fits. */
export const LAYERS = [
  'core/',
  'revisions/',
  'storage/',
  'storage/sqlite/',
  'storage/postgres/',
  'storage/open-engine.ts',
  'sandbox/',
  'documents/',
  'query/',
  'couchapps/',
  'changes/',
  'replication/requests/',
  'threads/',
  'config/',
  'auth/',
  'hosted/',
  'replication/',
  'metrics/',
  'backup/',
  'healing/',
  'scrub/',
  'time-machine/',
  'vaults/',
  'move/',
  'standby/',
  'control/',
  'http/',
  'app.ts',
  'server/',
  'server.ts',
  'index.ts',
  'doctor/',
  'cli/',
] as const

export type Layer = (typeof LAYERS)[number]

/** @returns undefined for a file in no layer */
export function layerOf(path: string): Layer | undefined {
  const fitting = LAYERS.filter((layer) => (layer.endsWith('/') ? path.startsWith(layer) : path === layer))
  return fitting.sort((a, b) => b.length - a.length)[0]
}

/** Imports of a layer to the right, as `file -> file`. */
export function importsToTheRight(sources: readonly Source[]): string[] {
  const place = (path: string) => LAYERS.indexOf(layerOf(path) as Layer)
  return edges(sources)
    .filter(([from, to]) => place(to) > place(from))
    .map(told)
}

function edges(sources: readonly Source[]): [from: string, to: string][] {
  return sources.flatMap(({ path, imports }) => imports.map((to): [string, string] => [path, to]))
}

function told([from, to]: readonly [string, string]): string {
  return `${from} -> ${to}`
}

/** The first circle that is found in each part of the graph, as `a -> b -> a`. */
export function circles(sources: readonly Source[]): string[] {
  const graph = new Map(sources.map(({ path, imports }) => [path, imports]))
  const done = new Set<string>()
  const found: string[] = []
  const walk = (path: string, way: readonly string[]): void => {
    const at = way.indexOf(path)
    if (at !== -1) found.push([...way.slice(at), path].join(' -> '))
    if (at !== -1 || done.has(path)) return
    for (const next of graph.get(path) ?? []) walk(next, [...way, path])
    done.add(path)
  }
  for (const { path } of sources) walk(path, [])
  return found
}

/** Files outside the allowed places that import a package, as `file -> package`. */
export function packageOutside(
  sources: readonly Source[],
  name: string,
  allowed: (path: string) => boolean,
): string[] {
  const strangers = sources.filter(({ path, packages }) => packages.includes(name) && !allowed(path))
  return strangers.map(({ path }) => told([path, name]))
}

/** Lines that fit a pattern, as `file: line`. */
export function linesWith(
  sources: readonly Source[],
  pattern: Pick<RegExp, 'test'>,
  textOf: (source: Source) => string,
): string[] {
  return sources.flatMap((source) =>
    textOf(source)
      .split('\n')
      .flatMap((line) => (pattern.test(line) ? [`${source.path}: ${line.trim()}`] : [])),
  )
}
