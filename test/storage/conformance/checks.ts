/** Checks of everything that is stored, in steps, of a database in use. */
import type { Test } from 'tap'
import { type DamagedPart, FoundDamage } from '../../../src/storage/damage.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { attachment, put, remove } from './edits.ts'
import { type DamagedRow, openNotes, type StorageCases } from './setup.ts'

/** What a check says of each kind of damage to the document of that name. */
const PARTS: Readonly<Record<DamagedRow, object>> = {
  row: { kind: 'document', id: 'row' },
  body: { kind: 'revision', id: 'body' },
  ancestry: { kind: 'revision', id: 'ancestry' },
  attachment: { kind: 'attachment', id: 'attachment', name: 'a.png' },
  content: { kind: 'attachment', id: 'content', name: 'a.png' },
  local: { kind: 'local', id: '_local/local' },
  security: { kind: 'security' },
}
const KINDS = Object.keys(PARTS) as DamagedRow[]

/** Checks `notes` in the shortest steps. @param between called after each step */
async function checked(
  t: Test,
  engine: StorageEngine,
  between: (step: number) => Promise<unknown> = async () => undefined,
): Promise<readonly DamagedPart[]> {
  const damage = new FoundDamage()
  let share = 0
  for (let n = 0, from = null as Parameters<StorageEngine['checkDatabase']>[1]; ; n++) {
    // It is kept as JSON over restarts.
    const step = await engine.checkDatabase('notes', JSON.parse(JSON.stringify(from)), 0)
    if (step.damage !== null) damage.addAll(step.damage)
    if (step.share < share) t.fail(`the progress went from ${share} back to ${step.share}`)
    share = step.share
    if (step.next === null) {
      t.equal(share, 1)
      return damage.found?.parts ?? []
    }
    from = step.next
    await between(n)
  }
}

export const checkCases: StorageCases = {
  'each kind of damage is named by what it belongs to': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const { store, engine, damage } = opened
    for (const id of KINDS) {
      const attachments = [attachment('a.png', Buffer.from(`a picture of ${id} `.repeat(40_000)))]
      await store.updateDocs([put(id, '{"text":"true"}', { attachments })])
    }
    await store.updateLocals([
      { id: '_local/local', decide: () => ({ result: 0, write: { rev: 1, body: '{"a":"true"}' } }) },
    ])
    await store.updateSettings(() => ({
      result: 0,
      write: { security: { members: { names: ['true'], roles: [] } } },
    }))
    t.strictSame(await checked(t, engine), [], 'a whole database')
    if (damage === null) return
    for (const kind of KINDS) await damage?.(kind, kind === 'local' ? '_local/local' : kind)
    const found = await checked(t, engine)
    // A sequence number above all others makes one.
    const others = found.filter(({ kind }) => kind !== 'counters')
    const byName = (part: object) => JSON.stringify([part, (part as { kind: string }).kind])
    t.match(
      others.toSorted((a, b) => byName(a).localeCompare(byName(b))),
      Object.values(PARTS).toSorted((a, b) => byName(a).localeCompare(byName(b))),
    )
    t.equal(others.length, KINDS.length, 'each once')
  },

  'writes between the steps are no damage': async (t, makeEngine) => {
    const { store, engine } = await openNotes(t, makeEngine)
    const ids = Array.from({ length: 120 }, (_, n) => `note-${n}`)
    const picture = (id: string) => ({ attachments: [attachment('a', Buffer.from(`of ${id}`))] })
    await store.updateDocs(ids.map((id) => put(id, '{"n":1}', picture(id))))
    const found = await checked(t, engine, async (step) => {
      if (step > 100) return
      const id = ids[step % ids.length] as string
      await store.updateDocs([
        step % 3 === 0 ? remove(id) : put(id, `{"n":${step}}`),
        put(`new-${step % 40}`, '{}', picture(`new-${step}`)),
      ])
      if (step % 5 === 0) await store.compact({ keepSince: 0 })
    })
    t.strictSame(found, [])
  },
}
