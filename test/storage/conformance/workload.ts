/** Writes of every kind, each with a mark of its own, so that what is stored tells which of them were done. */
import type { DatabaseStore, DocUpdate, Outcome } from '../../../src/storage/engine.ts'
import { attachment, failing, put, readFeed, remove } from './edits.ts'
import { ALL } from './setup.ts'

export interface Attempt {
  readonly mark: string
  readonly kind: 'doc' | 'local' | 'settings' | 'token'
  readonly done: boolean
  readonly error?: unknown
}

/** Thrown by the one update of the workload whose decision refuses it. */
export const REFUSAL = new Error('refused by decide')

const TOKEN = 't1'

/** Makes writes in a few calls, some of them at the same time, and tells what came of each. */
export async function runWorkload(store: DatabaseStore): Promise<Attempt[]> {
  const file = attachment('file', Buffer.from('some bytes'))
  const large = attachment('large', Buffer.alloc(300_000, 7))
  const first = await Promise.all([
    tryDocs(store, {
      d1: put('a', mark('d1')),
      d2: put('b', mark('d2'), { attachments: [file] }),
      d3: put('c', mark('d3')),
    }),
    tryDocs(store, { d4: put('a', mark('d4')), d5: remove('b', mark('d5')), d6: put('d', mark('d6')) }),
    tryLocals(store, ['l1', 'l2']),
    trySettings(store, 's1'),
    tryToken(store, TOKEN),
  ])
  const second = await tryDocs(store, {
    d7: put('a', mark('d7'), { attachments: [file, large] }),
    refused: failing('a', REFUSAL),
    d8: put('b', mark('d8'), { attachments: [file] }),
    d9: put('a', mark('d9')),
    d10: remove('seed', mark('d10')),
  })
  const third = await tryLocals(store, ['l3'])
  return [...first.flat(), ...second, ...third]
}

/** The marks of what is stored, in order. */
export async function storedMarks(store: DatabaseStore): Promise<string[]> {
  const bodies = (await readFeed(store)).flatMap((doc) => doc.revisions.map(({ body }) => body ?? '{}'))
  const locals = (await store.readLocalRange({}, ALL)).rows.map(({ body }) => body)
  const settings = JSON.stringify((await store.view()).security ?? {})
  const point = await store.findPoint(TOKEN, 0, () => true)
  return [...bodies, ...locals, settings, mark(point?.family ?? '')]
    .flatMap((text) => (JSON.parse(text) as { mark?: string }).mark || [])
    .sort()
}

function mark(name: string): string {
  return JSON.stringify({ mark: name })
}

function tryDocs(store: DatabaseStore, updates: Record<string, DocUpdate<string>>): Promise<Attempt[]> {
  return attempts('doc', Object.keys(updates), store.updateDocs(Object.values(updates)))
}

async function tryLocals(store: DatabaseStore, names: readonly string[]): Promise<Attempt[]> {
  const updates = names.map((name) => ({
    id: `_local/${name}`,
    decide: () => ({ result: 0, write: { rev: 1, body: mark(name) } }),
  }))
  return attempts('local', names, store.updateLocals(updates))
}

async function trySettings(store: DatabaseStore, name: string): Promise<Attempt[]> {
  const change = store.updateSettings(() => ({ result: 0, write: { security: { mark: name } } }))
  return attempts(
    'settings',
    [name],
    change.then((result) => [{ result }]),
  )
}

async function tryToken(store: DatabaseStore, name: string): Promise<Attempt[]> {
  const writing = store.rememberPoints([{ family: name, parts: [], total: 0, seq: 0 }])
  return attempts(
    'token',
    [name],
    writing.then(() => [{ result: 0 }]),
  )
}

async function attempts(
  kind: Attempt['kind'],
  names: readonly string[],
  writing: Promise<Outcome<unknown, unknown>[]>,
): Promise<Attempt[]> {
  try {
    const outcomes = await writing
    return names.map((name, i) => {
      const outcome = outcomes[i]
      const error = outcome !== undefined && 'error' in outcome ? outcome.error : undefined
      return { mark: name, kind, done: outcome !== undefined && 'result' in outcome, error }
    })
  } catch (error) {
    return names.map((name) => ({ mark: name, kind, done: false, error }))
  }
}
