// Bundles the program into few files, which Node loads faster than one for each source (docs/decisions/0063).
import { existsSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { rolldown } from 'rolldown'

/** What is started or imported by path. Its files lie in dist/ as their sources lie in src/. */
const ENTRIES = [
  'cli/main',
  'cli/serve-command',
  'core/address',
  'index',
  'sandbox/sandbox-worker',
  'server',
  'storage/sqlite/index-sort',
  'threads/host',
]

/**
 * The modules with which each kind of process and thread starts. A module's file depends on which kinds load it, by static
 * imports from these, and on whether what is loaded later does ({@link LATER}).
 */
const STARTS = {
  command: ['cli/main', 'cli/commands', 'cli/grammar', 'cli/serve-command'],
  server: ['server', 'app', 'http/routes/console-routes'],
  thread: ['threads/host'],
  sandbox: ['sandbox/sandbox-worker'],
}

/** What is loaded later, if at all: it must not load all of a server or of a database thread. */
const LATER = { tool: /^cli\//, engine: /^storage\// }

/** Browsers use it, so its file imports no other. */
const ALONE = 'core/address'

/** It finds the program's files from its own place, one folder deep, so its file has to be in such a folder. */
const FINDER = 'core/program-files'
const CHUNKS = 'chunks'

/**
 * Bundles the sources in `src` into `out`, with source maps.
 * @throws Error if they cannot be bundled
 */
export async function bundle(src, out) {
  const idOf = (path) => join(src, `${path}.ts`)
  const kinds = new Map()
  // The tests of the build have a smaller program.
  const entries = ENTRIES.filter((path) => existsSync(idOf(path)))
  const build = await rolldown({
    input: Object.fromEntries(entries.map((path) => [path, idOf(path)])),
    platform: 'node',
    transform: { target: 'node22' },
    // Packages are installed beside settee.
    external: /^[^./]/,
    onLog(_level, { message }) {
      throw new Error(message)
    },
    plugins: [
      {
        name: 'kinds',
        buildEnd() {
          for (const [kind, ids] of startsOf(this, src)) {
            for (const id of withImports(this, ids)) kinds.set(id, [...(kinds.get(id) ?? []), kind])
          }
        },
      },
    ],
  })
  try {
    const { output } = await build.write({
      dir: out,
      entryFileNames: '[name].js',
      chunkFileNames: `${CHUNKS}/[name].js`,
      sourcemap: true,
      sourcemapExcludeSources: true,
      codeSplitting: { groups: groupsOf(kinds, { alone: idOf(ALONE), entries: entries.map(idOf) }) },
    })
    const finder = output.find(({ moduleIds }) => moduleIds?.includes(idOf(FINDER)))
    if (finder !== undefined && finder.fileName.split('/').length !== 2) {
      throw new Error(`${FINDER} is in ${finder.fileName}, from where it does not find the other files.`)
    }
  } finally {
    await build.close()
  }
}

/** The first modules of each kind, and of what is loaded later. */
function startsOf(graph, src) {
  const pathOf = (id) => relative(src, id).split(sep).join('/').replace(/\.ts$/, '')
  const starts = new Set(Object.values(STARTS).flat())
  const ids = [...graph.getModuleIds()]
  const isLoadedByItself = (id) => {
    const { isEntry, dynamicImporters } = graph.getModuleInfo(id)
    return isEntry || dynamicImporters.length > 0
  }
  const isLater = (id, pattern) => pattern.test(pathOf(id)) && !starts.has(pathOf(id)) && isLoadedByItself(id)
  return [
    ...Object.entries(STARTS).map(([kind, paths]) => [kind, ids.filter((id) => paths.includes(pathOf(id)))]),
    ...Object.entries(LATER).map(([kind, pattern]) => [kind, ids.filter((id) => isLater(id, pattern))]),
  ]
}

/** @returns the modules, and all that they import statically */
function withImports(graph, ids) {
  const found = new Set(ids)
  for (const id of found) {
    for (const imported of graph.getModuleInfo(id)?.importedIds ?? []) found.add(imported)
  }
  return found
}

/**
 * A group of modules, which is a file, for each set of kinds. A group takes along what its modules import unless it belongs to
 * a group before it, so larger sets come first: what a module imports is loaded by all that load the module.
 */
function groupsOf(kinds, { alone, entries }) {
  const own = new Set(entries)
  const sets = [[]]
  for (const kind of [...Object.keys(STARTS), ...Object.keys(LATER)]) {
    sets.push(...sets.map((set) => [...set, kind]))
  }
  // What only later parts load has a file for each of them, as the bundler does by itself.
  const grouped = sets.filter((set) => set.some((kind) => kind in STARTS)).sort((a, b) => b.length - a.length)
  return [
    { name: 'alone', test: (id) => id === alone, priority: sets.length },
    ...grouped.map((set, at) => ({
      name: set.join('-'),
      test: (id) => !own.has(id) && kinds.get(id)?.join() === set.join(),
      priority: grouped.length - at,
    })),
  ]
}
