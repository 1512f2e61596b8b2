/** The rules of console/README.md, and of the house's style, for the two pages that run in a browser. */
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { circles, linesWith, readSources, type Source, source } from './sources.ts'

const MAX_LINES = 400
const TEXTS = 'strings/en.ts'
/** Pure files of the server whose rules a page shares. */
const SHARED =
  /^(?:\.\.\/)+src\/(?:core\/address|core\/app-origins|doctor\/advice|doctor\/finding|vaults\/livesync)\.ts$/

const [consoleSources, notes] = await Promise.all([
  readSources(fileURLToPath(new URL('../../console/src', import.meta.url))),
  readSources(fileURLToPath(new URL('../../examples/notes/src', import.meta.url))),
])

for (const [page, sources, known] of [
  ['the console', consoleSources, [TEXTS]],
  ['the notes app', notes, []],
] as const) {
  const code = sources.filter(isCode)

  t.test(`${page}: the import graph is complete, without circles`, async (t) => {
    t.ok(code.length > 50)
    const paths = new Set(sources.map(({ path }) => path))
    t.same(
      sources.flatMap(({ imports }) => imports.filter((path) => !paths.has(path) && !SHARED.test(path))),
      [],
    )
    t.same(circles(code), [])
  })

  t.test(`${page}: no file is longer than ${MAX_LINES} lines`, async (t) => {
    const long = sources.filter(({ text }) => text.trimEnd().split('\n').length > MAX_LINES)
    t.same(
      long.map(({ path }) => path),
      known,
    )
  })

  t.test(`${page}: base names are unique, and say what is in the file`, async (t) => {
    const names = sources.map(({ path }) => path.split('/').at(-1) ?? '')
    t.same(
      names.filter((name, at) => names.indexOf(name) !== at),
      [],
    )
    t.same(
      names.filter((name) => /^index\.|(?:^|-)(?:utils?|helpers?|misc|common)\.tsx?$/.test(name)),
      [],
    )
  })

  t.test(
    `${page}: nothing is written to the browser's console, left to be done, or of type any`,
    async (t) => {
      t.same(
        linesWith(code, /\bconsole\.\w+\(/, ({ code }) => code),
        [],
      )
      t.same(
        linesWith(
          sources,
          /\b(?:TODO|FIXME|XXX|HACK)\b|@ts-(?:ignore|nocheck|expect-error)/,
          ({ text }) => text,
        ),
        [],
      )
      t.same(
        linesWith(code, /(?:[:<|&,]\s*|\bas\s+|=>\s*)any\b(?!\s*[(:'])/, ({ code }) => code),
        [],
      )
    },
  )
}

const code = consoleSources.filter(isCode)

t.test('a file of the console imports from its own folder and from those before it', async (t) => {
  t.same(wrongImports(code), [])
})

t.test('calls go through api/, but for those that need the answer itself', async (t) => {
  const others = code.filter(
    ({ path }) =>
      !['api/client.ts', 'screens/doctor/probes.ts', 'screens/documents/attachment-preview.tsx'].includes(
        path,
      ),
  )
  t.same(
    linesWith(others, /(?<![.#\w])fetch\(|XMLHttpRequest|EventSource|sendBeacon/, ({ code }) => code),
    [],
  )
})

t.test('no dialog of the browser, and no HTML or style from text', async (t) => {
  t.same(
    linesWith(code, /\b(?:alert|prompt)\(|\bwindow\.confirm/, ({ code }) => code),
    [],
  )
  const asking = code.filter(
    (each) => /(?<![.\w])confirm\(/.test(each.code) && each.path !== 'parts/confirm.tsx',
  )
  t.same(
    asking.filter(({ imports }) => !imports.includes('parts/confirm.tsx')).map(({ path }) => path),
    [],
  )
  t.same(
    linesWith(code, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\bstyle="/i, ({ code }) => code),
    [],
  )
})

t.test('no text outside strings/en.ts', async (t) => {
  t.same(wrongTexts(code), [])
})

t.test('each rule detects a violation', async (t) => {
  const wrong = [
    source('api/a.ts', `import { b } from '../parts/b.tsx'\nthrow new Error('The server said no.')`),
    source('parts/b.tsx', `const b = <p class="x">Hello there</p>`),
    source(
      'screens/one/c.tsx',
      `import { d } from '../two/d.tsx'\n<Field label="Your name" />\n  Some words here`,
    ),
  ]
  t.same(wrongImports(wrong), ['api/a.ts -> parts/b.tsx', 'screens/one/c.tsx -> screens/two/d.tsx'])
  t.same(wrongTexts(wrong), [
    `api/a.ts: throw new Error('The server said no.')`,
    'parts/b.tsx: const b = <p class="x">Hello there</p>',
    'screens/one/c.tsx: <Field label="Your name" />',
    'screens/one/c.tsx: Some words here',
  ])
})

function isCode({ path }: Source): boolean {
  return /\.tsx?$/.test(path)
}

/** What a file may import beside its own folder. The tabs of a database are screens within a screen. */
const MAY_IMPORT: readonly (readonly [from: RegExp, to: RegExp])[] = [
  [/^strings\//, /^$/],
  [/^api\//, /^strings\//],
  [/^parts\//, /^(?:strings|api)\/|^shell\/hash\.ts$/],
  [
    /^screens\/databases\/database-page\.tsx$/,
    /^(?:strings|api|parts|shell)\/|^screens\/\w+\/\w+-part\.tsx$/,
  ],
  [/^screens\//, /^(?:strings|api|parts|shell)\/|^screens\/databases\/database-part\.ts$/],
  [/^/, /^/],
]

/** Imports that {@link MAY_IMPORT} does not have, as `file -> file`. */
function wrongImports(sources: readonly Source[]): string[] {
  return sources.flatMap(({ path, imports }) => {
    const allowed = MAY_IMPORT.find(([from]) => from.test(path))?.[1]
    const strange = imports.filter(
      (to) => folderOf(to) !== folderOf(path) && !SHARED.test(to) && allowed?.test(to) !== true,
    )
    return strange.map((to) => `${path} -> ${to}`)
  })
}

/** `api`, or `screens/doctor`. */
function folderOf(path: string): string {
  return /^(?:screens\/)?[^/]+/.exec(path)?.[0] ?? path
}

/** Text between tags, alone on a line, in an attribute that is shown, and in a string of several words. */
const TEXT = [
  />[^<>{}=;()&|]*[A-Za-z]{2}[^<>{}=;()&|]*<\//,
  /^\s*[A-Z][a-z]+(?: [a-z]+)+[.,:]?$/,
  /\b(?:title|label|placeholder|hint|lead|alt|text)="[^"]*[A-Za-z]{2}/,
  /(['"`])[A-Z][a-z]+ [a-z][^'"`]*\1/,
]

/** Lines with a text for users, as far as a pattern can tell. */
function wrongTexts(sources: readonly Source[]): string[] {
  const others = sources.filter(({ path }) => path !== TEXTS)
  const isText = { test: (line: string) => TEXT.some((pattern) => pattern.test(line)) }
  return linesWith(others, isText, ({ code }) => code)
}
