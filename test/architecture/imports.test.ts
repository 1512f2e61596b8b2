/** The rules of architecture.md, "Layers", and of the house's style, that a reader of one file alone cannot see broken. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import {
  circles,
  importsToTheRight,
  layerOf,
  linesWith,
  packageOutside,
  readSources,
  type Source,
  source,
} from './sources.ts'

const MAX_LINES = 600

const sources = await readSources()

function none(sources: readonly Source[], breaksRule: (source: Source) => boolean): string[] {
  return sources.filter(breaksRule).map(({ path }) => path)
}

t.test('the import graph is complete: there are files, and their imports exist', async (t) => {
  t.ok(sources.length > 50)
  const paths = new Set(sources.map(({ path }) => path))
  const missing = sources.flatMap(({ imports }) => imports.filter((path) => !paths.has(path)))
  t.same(missing, [])
  t.ok(sources.some(({ packages }) => packages.includes('fastify')))
})

t.test('every file is TypeScript and belongs to a layer', async (t) => {
  t.same(
    none(sources, ({ path }) => layerOf(path) === undefined || !path.endsWith('.ts')),
    [],
  )
})

t.test('a file imports from its own layer and from layers to its left', async (t) => {
  t.same(importsToTheRight(sources), [])
})

t.test('no imports run in a circle', async (t) => {
  t.same(circles(sources), [])
})

t.test('fastify stays in http/, app.ts, server/ and server.ts', async (t) => {
  const allowed = (path: string) => /^(?:http\/|server\/|app\.ts$|server\.ts$)/.test(path)
  for (const name of [
    'fastify',
    'fastify-plugin',
    '@fastify/basic-auth',
    '@fastify/compress',
    '@fastify/rate-limit',
    '@fastify/proxy-addr',
    '@fastify/static',
  ]) {
    t.same(packageOutside(sources, name, allowed), [])
  }
})

t.test('better-sqlite3 stays in storage/sqlite/', async (t) => {
  t.same(
    packageOutside(sources, 'better-sqlite3', (path) => path.startsWith('storage/sqlite/')),
    [],
  )
})

t.test('undici stays in replication/remote', async (t) => {
  t.same(
    packageOutside(sources, 'undici', (path) => path.startsWith('replication/remote/')),
    [],
  )
})

t.test('jose stays in auth/jwt-signature.ts', async (t) => {
  t.same(
    packageOutside(sources, 'jose', (path) => path === 'auth/jwt-signature.ts'),
    [],
  )
})

t.test('re2js stays in query/regex.ts', async (t) => {
  t.same(
    packageOutside(sources, 're2js', (path) => path === 'query/regex.ts'),
    [],
  )
})

t.test('prom-client stays in metrics/exposition.ts', async (t) => {
  t.same(
    packageOutside(sources, 'prom-client', (path) => path === 'metrics/exposition.ts'),
    [],
  )
})

t.test('modules that few servers need are not loaded at the start', async (t) => {
  const isLoadedLater = (path: string) =>
    /^(?:cli\/|doctor\/|auth\/jwt-signature\.ts$|metrics\/exposition\.ts$|http\/routes\/console-routes\.ts$|http\/transport\/rewritten-request\.ts$)/.test(
      path,
    )
  const loaded = sources.filter(({ path }) => !isLoadedLater(path))
  const costly =
    /^import (?!type\b).*'(?:re2js|pino-pretty|jose|prom-client|@fastify\/rate-limit|@fastify\/static|node:https?)'/
  t.same(
    linesWith(loaded, costly, ({ code }) => code),
    [],
  )
})

t.test('no module finds a file by its own place, which is another one in the bundle', async (t) => {
  const others = sources.filter(({ path }) => path !== 'core/program-files.ts')
  t.same(
    linesWith(others, /(?<!createRequire\()import\.meta\b/, ({ code }) => code),
    [],
  )
})

t.test('what is started by path is an entry of the bundle', async (t) => {
  const script = await readFile(new URL('../../scripts/bundle.mjs', import.meta.url), 'utf8')
  const entries = /const ENTRIES = \[([^\]]*)\]/.exec(script)?.[1] ?? ''
  const started = sources.flatMap(({ code }) => [...code.matchAll(/\bprogramModule\('([^']+)'\)/g)])
  t.ok(started.length > 3)
  t.same(
    started.map(([, path]) => path).filter((path) => !entries.includes(`'${path}'`)),
    [],
  )
})

t.test('terminal prompts stay in one file', async (t) => {
  for (const [name, file] of [
    ['@clack/prompts', 'cli/prompts.ts'],
    ['uqr', 'cli/vault-report.ts'],
  ] as const) {
    t.same(
      packageOutside(sources, name, (path) => path === file),
      [],
    )
  }
})

t.test('QuickJS stays in sandbox/', async (t) => {
  t.same(
    packageOutside(sources, 'quickjs-emscripten', (path) => path.startsWith('sandbox/')),
    [],
  )
})

t.test('an engine is known to storage/open-engine.ts alone', async (t) => {
  const mayKnow = (path: string) => path === 'storage/open-engine.ts' || isEngine(path)
  t.same(
    none(sources, ({ path, imports }) => imports.some(isEngine) && !mayKnow(path)),
    [],
  )
})

function isEngine(path: string): boolean {
  return /^storage\/(?:sqlite|postgres)\//.test(path)
}

t.test('core/ imports nothing of ours but itself', async (t) => {
  const isStrange = ({ path, imports }: Source) =>
    path.startsWith('core/') && imports.some((other) => !other.startsWith('core/'))
  t.same(none(sources, isStrange), [])
})

t.test(`no file is longer than ${MAX_LINES} lines`, async (t) => {
  t.same(
    none(sources, ({ text }) => text.trimEnd().split('\n').length > MAX_LINES),
    [],
  )
})

t.test('no file re-exports from another', async (t) => {
  t.same(
    none(sources, ({ code }) => /^export\b[^'"`;=(]*\bfrom\s*['"]/m.test(code)),
    [],
  )
  t.same(
    none(sources, ({ path }) => path !== 'index.ts' && /(?:^|\/)index\.ts$/.test(path)),
    [],
  )
})

t.test('no file is named for having no subject', async (t) => {
  t.same(
    none(sources, ({ path }) => /(?:^|[/-])(?:utils?|helpers?|misc|common)\.ts$/.test(path)),
    [],
  )
})

t.test('console stays in cli/', async (t) => {
  const others = sources.filter(({ path }) => !path.startsWith('cli/'))
  t.same(
    linesWith(others, /\bconsole\s*[.[]/, ({ code }) => code),
    [],
  )
})

t.test('nothing is left to be done', async (t) => {
  t.same(
    linesWith(sources, /\b(?:TODO|FIXME|XXX|HACK)\b/, ({ text }) => text),
    [],
  )
})

t.test('nothing is of type any, and no type error is silenced', async (t) => {
  t.same(
    linesWith(sources, /(?:[:<|&,]\s*|\bas\s+|=>\s*)any\b(?!\s*[(:'])/, ({ code }) => code),
    [],
  )
  t.same(
    linesWith(sources, /@ts-(?:ignore|nocheck|expect-error)/, ({ text }) => text),
    [],
  )
})

t.test('each rule detects a violation', async (t) => {
  const wrong = [
    source('core/a.ts', `import type { B } from '../http/b.ts'\n/** : any TODO */\nconst x = 1 as any`),
    source(
      'http/b.ts',
      `import {\n  a,\n} from '../core/a.ts'\nimport 'undici'\n// see http://x\nf(): Promise<any>`,
    ),
    source('cli/c.ts', `const later = await import('better-sqlite3')\nexport { a } from '../core/a.ts'`),
    source('odd/d.ts', `export const url = 'https://example.org'\nexport const from = 'x'`),
  ]
  t.same(importsToTheRight(wrong), ['core/a.ts -> http/b.ts'])
  t.same(circles(wrong), ['core/a.ts -> http/b.ts -> core/a.ts'])
  t.same(
    packageOutside(wrong, 'undici', () => false),
    ['http/b.ts -> undici'],
  )
  t.same(
    packageOutside(wrong, 'better-sqlite3', () => false),
    ['cli/c.ts -> better-sqlite3'],
  )
  t.same(layerOf('odd/d.ts'), undefined)
  t.same(wrong[3]?.packages, [])
  t.same(layerOf('storage/sqlite/x.ts'), 'storage/sqlite/')
  t.same(
    linesWith(wrong, /\bany\b/, ({ code }) => code),
    ['core/a.ts: const x = 1 as any', 'http/b.ts: f(): Promise<any>'],
  )
})
