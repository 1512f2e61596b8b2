/** Where pages and comments send their readers, there is something. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import t from 'tap'
import { ROOT } from '../cli/child.ts'
import { commandsOf, fencesOf, PAGES, pageText } from './fences.ts'

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

t.test('pages whose commands begin with settee say how to run them in a checkout', async (t) => {
  const isSettee = (line: string) => /(?:^|\| )\s*settee /.test(line)
  const pages = PAGES.filter((page) =>
    fencesOf(page).some((fence) => fence.language === 'sh' && commandsOf(fence).some(isSettee)),
  )
  t.ok(pages.length > 5)
  for (const page of pages) t.match(pageText(page), /`npx settee`/, page)
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

/** Folders whose texts cite the specification, and what files of theirs are texts. */
const CITING = ['src', 'test', 'bench', 'scripts', 'examples', 'deploy', 'docs']
const TEXT = /\.(?:[cm]?[jt]sx?|c|css|html|md|service|sh|ya?ml)$/

/** Files below a folder, below the root. */
function filesIn(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile() && !file.parentPath.includes('node_modules'))
    .map((file) => join(file.parentPath, file.name).slice(ROOT.length))
}

/** The numbers of a page's sections, and the R7 and pain 5 of its tables. */
function numbersOf(page: string): Set<string> {
  const headings = unfenced(page).matchAll(/^#+ (\d+(?:\.\d+)?)[. ]/gm)
  const rows = unfenced(page).matchAll(/^\| ((?:R|pain )\d+) \|/gm)
  return new Set([...headings, ...rows].map(([, number = '']) => number))
}

const NUMBERS: Readonly<Record<string, ReadonlySet<string>>> = {
  'protocol.md': numbersOf('docs/protocol.md'),
  'clients.md': numbersOf('docs/clients.md'),
}
const HEADINGS = new Set(
  [...unfenced('docs/architecture.md').matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading),
)
const NUMBERED = /\b(protocol\.md|clients\.md)((?:(?:,| and| or| to)? (?:R\d+|pain \d+|\d+(?:\.\d+)?))+)/g
const NAMED = /\barchitecture\.md, "([^"]+)"/g
/** What the repository does not have: its content is in the page on the architecture. */
const GONE = /\bdesign\.md\b/g
const PAGE = /\bdocs\/([\w-]+\.md\b|decisions\/\d{4})/g

/** What a text cites that is not there. A citation may go on in the next line of a comment. */
function brokenCitations(text: string): string[] {
  const line = text.replaceAll(/\s*\n\s*(?:\/\/|\*|#)?\s*/g, ' ')
  const numbered = [...line.matchAll(NUMBERED)].flatMap(([, page = '', list = '']) =>
    [...list.matchAll(/R\d+|pain \d+|\d+(?:\.\d+)?/g)]
      .filter(([number]) => !NUMBERS[page]?.has(number))
      .map(([number]) => `${page} ${number}`),
  )
  const named = [...line.matchAll(NAMED)].filter(([, heading = '']) => !HEADINGS.has(heading))
  const gone = [...line.matchAll(GONE)]
  const pages = [...line.matchAll(PAGE)].filter(
    ([, path = '']) => ![...PAGES, ...DECISIONS].some((page) => page.startsWith(`docs/${path}`)),
  )
  return [...numbered, ...[...named, ...pages, ...gone].map(([cited]) => cited)]
}

t.test('citations lead to sections that are there', async (t) => {
  const files = CITING.flatMap(filesIn).filter((file) => TEXT.test(file))
  for (const file of ['README.md', ...files]) {
    const broken = brokenCitations(readFileSync(join(ROOT, file), 'utf8'))
    if (broken.length > 0) t.fail(`${file}: ${broken.join('; ')}`)
  }
  t.ok(files.length > 100)
})

t.test('citations of what is not there are found', async (t) => {
  // Put together here, since this file is looked at as well.
  const cite = (page: string, what: string) => `${page}.md${what}`
  const right = [
    cite('protocol', ' 3.2, 5.5 and 19.1 to 19.3.'),
    cite('clients', ' 1.2, R12 and pain 22'),
    cite('clients', ', pain 5)'),
    cite('architecture', ', "Bodies"'),
    cite('docs/operating', ', Full disks'),
    cite('protocol', '\n * 4.1'),
  ]
  const wrong: [text: string, found: string][] = [
    [cite('protocol', ' 3.99'), cite('protocol', ' 3.99')],
    [cite('protocol', ' 3.2 and 20'), cite('protocol', ' 20')],
    [cite('protocol', '\n   * 4.77'), cite('protocol', ' 4.77')],
    [cite('clients', ' R77'), cite('clients', ' R77')],
    [cite('clients', ' 1.2, pain 99'), cite('clients', ' pain 99')],
    [cite('architecture', ', "Souls"'), cite('architecture', ', "Souls"')],
    [cite('design', ' 3'), cite('design', '')],
    [cite('docs/nothing', ''), cite('docs/nothing', '')],
    [['docs/decisions', '9999'].join('/'), ['docs/decisions', '9999'].join('/')],
  ]
  for (const text of right) t.same(brokenCitations(text), [], text)
  for (const [text, found] of wrong) t.same(brokenCitations(text), [found], text)
})

t.test('the architecture and the glossary name files that are there', async (t) => {
  const sources = filesIn('src').map((file) => file.slice('src/'.length))
  const isThere = (name: string) =>
    existsSync(join(ROOT, name)) || sources.some((file) => file === name || basename(file) === name)
  for (const page of ['docs/architecture.md', 'docs/glossary.md']) {
    const names = [...pageText(page).matchAll(/`([\w./-]+\.ts)`/g)].map(([, name = '']) => name)
    t.same(
      names.filter((name) => !name.includes('NAME') && !isThere(name)),
      [],
      page,
    )
  }
})
