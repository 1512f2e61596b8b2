/** Where the pages send their readers, there is something. */
import { existsSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { ROOT } from '../cli/child.ts'
import { PAGES, pageText } from './fences.ts'

const DECISIONS = readdirSync(join(ROOT, 'docs/decisions')).map((name) => `docs/decisions/${name}`)

interface Link {
  readonly page: string
  readonly text: string
  /** Below the root. */
  readonly path: string
  readonly anchor: string | undefined
}

/** A page without its blocks of code. */
function unfenced(page: string): string {
  return pageText(page).replaceAll(/^```.*?^```$/gms, '')
}

/** The links of a page into the tree, outside code. */
function linksOf(page: string): Link[] {
  const prose = unfenced(page).replaceAll(/`[^`\n]*`/g, '')
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, text = '']) => text)
    .filter((text) => !/^[a-z]+:/.test(text))
    .map((text) => {
      const [path = '', anchor] = text.split('#')
      return { page, text, path: path === '' ? page : join(dirname(page), path), anchor }
    })
}

/** The names that GitHub gives to the headings of a page. */
function anchorsOf(page: string): Set<string> {
  const headings = [...unfenced(page).matchAll(/^#+ (.+)$/gm)]
  return new Set(
    headings.map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  )
}

t.test('links lead somewhere', async (t) => {
  for (const { page, text, path, anchor } of [...PAGES, ...DECISIONS].flatMap(linksOf)) {
    if (!existsSync(join(ROOT, path))) t.fail(`${page}: ${text}`)
    else if (anchor !== undefined) t.ok(anchorsOf(path).has(anchor), `${page}: ${text}`)
  }
  t.pass('all looked at')
})

t.test('every page is to be reached from the README', async (t) => {
  const reached = new Set(['README.md'])
  for (const page of reached) {
    for (const { path } of linksOf(page).filter(({ path }) => path.endsWith('.md'))) reached.add(path)
  }
  t.same(
    PAGES.filter((page) => !reached.has(page)),
    [],
  )
})
