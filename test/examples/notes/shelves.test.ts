/** The trash, and books and tags that are renamed and deleted. */
import { randomUUID } from 'node:crypto'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t, { type Test } from 'tap'
import { changeAll } from '../../../examples/notes/src/notes/batches.ts'
import { deleteBook, deleteTag, renameBook, renameTag } from '../../../examples/notes/src/notes/labels.ts'
import { type Notebook, notebookOf, tagId } from '../../../examples/notes/src/notes/model.ts'
import { countsOf, notesOn } from '../../../examples/notes/src/notes/shelves.ts'
import { emptyTrash, moveToTrash, restore } from '../../../examples/notes/src/notes/trash.ts'
import type { Pouch } from '../../../examples/notes/src/pouch.ts'

PouchDB.plugin(memoryAdapter)

const SLOW = { id: 'tag:slow', rev: '', name: 'slow' }
const KITCHEN = { id: 'book:1', rev: '', name: 'Kitchen' }

/** A database with a book, a tag, and notes that have both. */
async function filled(t: Test, count: number): Promise<Pouch> {
  const made = new PouchDB(`notes-${randomUUID()}`, { adapter: 'memory' })
  t.teardown(() => made.destroy())
  const db = made as unknown as Pouch
  const notes = Array.from({ length: count }, (_, at) => ({
    _id: `note:${at}`,
    ...{ title: `Note ${at}`, body: 'x', bookId: 'book:1', tags: ['tag:slow', 'tag:x'], updatedAt: at },
    color: 'of another app',
  }))
  await db.bulkDocs([
    ...notes,
    { _id: 'tag:slow', name: 'slow' },
    { _id: 'book:1', name: 'Kitchen', color: 'red' },
  ])
  return db
}

async function notebook(db: Pouch): Promise<Notebook> {
  const { rows } = await db.allDocs({ include_docs: true, conflicts: true })
  return notebookOf(rows.flatMap(({ doc }) => doc ?? []))
}

t.test('a note in the trash is only there, and comes back as it was', async (t) => {
  const db = await filled(t, 3)
  const before = await db.get('note:1')
  await moveToTrash(db, ['note:1'], 5)
  await moveToTrash(db, ['note:2'], 6)
  const book = await notebook(db)
  const ids = (shelf: Parameters<typeof notesOn>[1]) => notesOn(book, shelf, '').map(({ id }) => id)
  t.same(ids({ kind: 'all' }), ['note:0'])
  t.same(ids({ kind: 'book', id: 'book:1' }), ['note:0'])
  t.same(ids({ kind: 'tag', id: 'tag:slow' }), ['note:0'])
  t.same(ids({ kind: 'trash' }), ['note:2', 'note:1'], 'the last one first')
  const { all, trash, byId } = countsOf(book)
  t.same([all, trash, byId.get('book:1'), byId.get('tag:slow')], [1, 2, 1, 1])
  await restore(db, ['note:1'])
  t.same({ ...(await db.get('note:1')), _rev: '' }, { ...before, _rev: '' })
})

t.test('the trash is emptied, except for what changed or is in conflict', async (t) => {
  const db = await filled(t, 4)
  const ids = ['note:0', 'note:1', 'note:2']
  await moveToTrash(db, ids)
  const write = db as unknown as { bulkDocs(docs: object[], options: object): Promise<unknown> }
  await write.bulkDocs([{ _id: 'note:2', _rev: '1-f', title: 'An edit elsewhere' }], { new_edits: false })
  const shown = notesOn(await notebook(db), { kind: 'trash' }, '')
  await restore(db, ['note:1'])
  await emptyTrash(db, shown)
  t.same([...(await notebook(db)).notes].map(({ id }) => id).sort(), ['note:1', 'note:2', 'note:3'])
})

t.test('a tag is renamed and deleted in all its notes, in batches', async (t) => {
  const db = await filled(t, 250)
  const steps: number[] = []
  const progress = (done: number) => steps.push(done)
  t.equal(await renameTag(db, SLOW, ' Slow Food', (await notebook(db)).notes, progress), tagId('slow food'))
  t.same(steps, [100, 200, 250])
  const renamed = await notebook(db)
  t.ok(renamed.notes.every(({ tags }) => tags.join() === 'tag:slow-food,tag:x'))
  t.same(
    renamed.tags.map(({ name }) => name),
    ['Slow Food'],
  )
  t.equal((await db.get('note:7')).color, 'of another app')

  const [tag] = renamed.tags
  if (tag === undefined) throw new Error('no tag')
  const undo = await deleteTag(db, tag, renamed.notes)
  const without = await notebook(db)
  t.ok(without.tags.length === 0 && without.notes.every(({ tags }) => tags.join() === 'tag:x'))
  await undo()
  const again = await notebook(db)
  t.ok(again.tags.length === 1 && again.notes.every(({ tags }) => tags.includes('tag:slow-food')))
})

t.test('a tag that gets the name of another becomes that one', async (t) => {
  const db = await filled(t, 1)
  await db.put({ _id: 'tag:x', name: 'X' })
  await renameTag(db, SLOW, 'x', (await notebook(db)).notes)
  const { notes, tags } = await notebook(db)
  t.same([notes[0]?.tags, tags.map(({ name }) => name)], [['tag:x'], ['X']])
})

t.test('a tag whose spelling changes keeps its id', async (t) => {
  const db = await filled(t, 1)
  t.equal(await renameTag(db, SLOW, 'SLOW', (await notebook(db)).notes), 'tag:slow')
  t.match(await db.get('tag:slow'), { name: 'SLOW' })
})

t.test('a book is renamed; deleted, it leaves its notes, and undo puts them into it again', async (t) => {
  const db = await filled(t, 2)
  await renameBook(db, KITCHEN, ' Cooking ')
  t.match(await db.get('book:1'), { name: 'Cooking', color: 'red' })
  const write = db as unknown as { bulkDocs(docs: object[], options: object): Promise<unknown> }
  await write.bulkDocs([{ _id: 'book:1', _rev: '1-f', name: 'renamed elsewhere' }], { new_edits: false })
  const undo = await deleteBook(db, KITCHEN)
  await t.rejects(db.get('book:1'), { name: 'not_found' }, 'with its other revision')
  t.equal((await notebook(db)).notes.length, 2)
  await undo()
  t.match(await db.get('book:1'), { color: 'red' })
  t.equal(countsOf(await notebook(db)).byId.get('book:1'), 2)
})

t.test('an edit that comes in between is changed, too', async (t) => {
  const db = await filled(t, 1)
  let isFirst = true
  const between: Pick<Pouch, 'allDocs' | 'bulkDocs'> = {
    allDocs: (options) => db.allDocs(options),
    bulkDocs: async (docs) => {
      if (isFirst) await db.put({ ...(await db.get('note:0')), body: 'edited' })
      isFirst = false
      return db.bulkDocs(docs)
    },
  }
  await changeAll(between, ['note:0', 'note:none'], (doc) => ({ ...doc, bookId: '' }))
  t.match(await db.get('note:0'), { body: 'edited', bookId: '' })
  const full = { allDocs: between.allDocs, bulkDocs: async () => [{ status: 507, reason: 'no room' }] }
  await t.rejects(
    changeAll(full, ['note:0'], (doc) => doc),
    { message: 'no room' },
  )
})
