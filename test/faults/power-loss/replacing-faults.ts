/**
 * Run by the recorder: the database `notes` is replaced by a copy, with a fault at each call in turn. Whoever is told
 * that it was finds what the copy holds, begun anew; whoever is refused finds what was there. Arguments: data folder,
 * path for marks, a folder that is not recorded.
 */
import { constants } from 'node:os'
import { join } from 'node:path'
import { CouchError } from '../../../src/core/errors.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { copiesOf, type StorageEngine } from '../../../src/storage/storage-engine.ts'
import { put } from '../../storage/conformance/edits.ts'
import { isStorageFault } from '../../storage/conformance/faults.ts'
import { storedMarks } from '../../storage/conformance/workload.ts'
import { MarkWriter } from './ledger.ts'

const [, , dataDir = '', markPath = '', elsewhere = ''] = process.argv
const marks = new MarkWriter(markPath)
const { EIO, ENOSPC } = constants.errno
/** More calls than anything here makes. */
const MOST_CALLS = 1000

interface Opened {
  engine: StorageEngine
  catalog: Catalog
}

async function open(): Promise<Opened> {
  const engine = sqliteEngine({ dataDir })
  return { engine, catalog: await engine.openCatalog() }
}

/** A closed file of a database that holds these marks, outside of what is recorded. */
async function copyOf(name: string, held: readonly string[]): Promise<string> {
  const engine = sqliteEngine({ dataDir: elsewhere })
  const catalog = await engine.openCatalog()
  await catalog.create(name)
  const store = await engine.openDatabase(name)
  await store.updateDocs(held.map((mark) => put(mark, JSON.stringify({ mark, text: 'x'.repeat(20_000) }))))
  await engine.close()
  return join(elsewhere, 'databases', `${name}.sqlite`)
}

function check(isTrue: boolean, problem: string): void {
  if (!isTrue) marks.problem(problem)
}

/** @returns what it failed of; null: it was done */
async function replace({ engine, catalog }: Opened, copy: string): Promise<unknown> {
  try {
    const { draft } = await copiesOf(engine).prepare('notes', copy)
    await catalog.replace('notes', draft)
    return null
  } catch (error) {
    return error
  }
}

/** What there is; every one that can be replaced by these was begun anew. */
async function look(engine: StorageEngine, when: string): Promise<string> {
  try {
    const store = await engine.openDatabase('notes')
    const { wasRestored } = await store.view()
    check(wasRestored, `${when}: it has not begun anew`)
    const held = JSON.stringify(await storedMarks(store))
    await store.close()
    return held
  } catch (error) {
    return `it cannot be opened: ${error}`
  }
}

async function main(): Promise<void> {
  const held = [['a'], ['a', 'b', 'c']] as const
  const copies = [await copyOf('one', held[0]), await copyOf('two', held[1])] as const
  let opened = await open()
  await opened.catalog.create('notes')
  check((await replace(opened, copies[0])) === null, 'without a fault')
  let now = JSON.stringify(held[0])
  marks.told([['stored|notes', now]])
  for (const [error, lasting] of [
    [EIO, false],
    [ENOSPC, true],
  ] as const) {
    let calls = 0
    for (let struck = true; struck && calls < MOST_CALLS; ) {
      calls += 1
      const next = now === JSON.stringify(held[0]) ? 1 : 0
      const wanted = JSON.stringify(held[next])
      const when = `fault ${error} at ${calls}, lasting: ${lasting}`
      marks.begun([['stored|notes', wanted]])
      marks.command(`!arm onstw ${calls} ${Number(lasting)} ${error} 0 -`)
      const failed = await replace(opened, copies[next])
      struck = marks.command('!disarm')
      const isOurs = isStorageFault(failed) || (failed instanceof CouchError && failed.code === 'bad_request')
      check(failed === null || (struck && isOurs), `${when}: the error is ${String(failed)}`)
      const found = await look(opened.engine, when)
      // Where the faults last, what was refused may have happened all the same.
      const isRight = found === (failed === null ? wanted : now) || (lasting && found === wanted)
      check(isRight, `${when}: told ${failed === null ? wanted : now}, found ${found}`)
      await opened.engine.close()
      opened = await open()
      const after = await look(opened.engine, `${when}, and a restart`)
      check(after === found, `${when}: found ${found}, and ${after} after a restart`)
      now = after
      if (failed === null) marks.told([['stored|notes', now]])
      else marks.begun([['stored|notes', now]])
    }
    marks.count(`replacing a database, lasting: ${lasting}`, calls - 1)
  }
  await opened.engine.close()
}

await main()
