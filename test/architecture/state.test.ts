/**
 * The tables of the server's state in docs/architecture.md are complete: with several nodes, state that decides something
 * for more than one request goes through the store, or it is written down why it need not.
 */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { heldState } from './held-state.ts'
import { readSources, source } from './sources.ts'

const DOC = new URL('../../docs/architecture.md', import.meta.url)
/** Layers whose state decides who may do what: each field has its own place in a table. */
const DECIDING =
  /^(?:auth|config|hosted|metrics|time-machine|vaults|control|server|standby|http\/plugins|http\/routes|replication\/(?:documents|jobs))\//

/** A file or folder of a table, and the fields that it names; without fields it stands for all of them. */
interface Row {
  readonly path: string
  readonly fields: readonly string[]
}

async function rows(): Promise<Row[]> {
  const text = await readFile(DOC, 'utf8')
  const [, after = ''] = text.split("\n## The server's state\n")
  const section = after.split('\n## ')[0] as string
  return section
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith('| what |'))
    .flatMap(rowsOf)
}

/** The second cell: `path` `Field` `Field`, `path` … */
function rowsOf(line: string): Row[] {
  const found: { path: string; fields: string[] }[] = []
  for (const [, span = ''] of (line.split(' | ')[1] ?? '').matchAll(/`([^`]+)`/g)) {
    if (/\/$|\.ts$/.test(span)) found.push({ path: span, fields: [] })
    else found.at(-1)?.fields.push(span)
  }
  return found
}

const sources = await readSources()
const table = await rows()

t.test('every state is in the tables', async (t) => {
  const missing = sources.flatMap((file) => {
    const own = table.filter(({ path }) => path === file.path)
    const above = table.filter(({ path }) => path.endsWith('/') && file.path.startsWith(path))
    if (own.length === 0 && above.length > 0 && !DECIDING.test(file.path)) return []
    if (own.some(({ fields }) => fields.length === 0) && !DECIDING.test(file.path)) return []
    const named = own.flatMap(({ fields }) => fields)
    return heldState(file)
      .filter((name) => !named.includes(name))
      .map((name) => `${file.path} ${name}`)
  })
  t.same(missing, [])
})

t.test('the tables name nothing that is not there', async (t) => {
  const byPath = new Map(sources.map((file) => [file.path, heldState(file)]))
  const stale = table.flatMap(({ path, fields }) => {
    const held = byPath.get(path)
    const isThere = path.endsWith('/') ? [...byPath.keys()].some((each) => each.startsWith(path)) : held
    if (!isThere) return [path]
    return fields.filter((name) => !held?.includes(name)).map((name) => `${path} ${name}`)
  })
  t.same(stale, [])
})

t.test('state is found in classes and modules', async (t) => {
  const text = `
let count = 0
const NAMES: ReadonlySet<string> = new Set(['a'])
const seen = new Map<string, number>()
export class Things {
  readonly #fixed: string
  readonly #all = new Map<string, Thing>()
  #last: Thing | null = null
  #timer: NodeJS.Timeout | undefined
  find(name: string): Thing {
    let local = 0
    return this.#all.get(name)
  }
}
interface Thing {
  name: string
}
`
  t.same(heldState(source('core/things.ts', text)), ['count', 'seen', 'Things.#all', 'Things.#last'])
})
