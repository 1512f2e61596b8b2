/** The notes of a device: what PouchDB holds, drafts, conflicts. */
import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t, { type Test } from 'tap'
import {
  compareLines,
  keep,
  keepAll,
  versionsOf,
  writersOf,
} from '../../../examples/notes/src/notes/conflicts.ts'
import { Draft } from '../../../examples/notes/src/notes/draft.ts'
import { LARGEST_PICTURE, Library } from '../../../examples/notes/src/notes/library.ts'
import {
  excerptOf,
  freshNote,
  type Note,
  newId,
  noteOf,
  tagId,
} from '../../../examples/notes/src/notes/model.ts'
import { notesOn } from '../../../examples/notes/src/notes/shelves.ts'
import type { Pouch } from '../../../examples/notes/src/pouch.ts'

PouchDB.plugin(memoryAdapter)

function database(t: Test): Pouch {
  const db = new PouchDB(`notes-${randomUUID()}`, { adapter: 'memory' })
  t.teardown(() => db.destroy())
  return db as unknown as Pouch
}

const HERE = { id: 'here', name: 'Desk' }

/** @returns the id of a new note */
async function addNote(db: Pouch, text: object): Promise<string> {
  const id = newId('note')
  await db.put({ _id: id, title: '', body: '', bookId: '', tags: [], createdAt: 1, updatedAt: 1, ...text })
  return id
}

async function removeAll(db: Pouch, id: string): Promise<void> {
  const { _rev, _conflicts = [] } = await db.get(id, { conflicts: true })
  await db.bulkDocs([_rev, ..._conflicts].map((rev) => ({ _id: id, _rev: rev, _deleted: true })))
}

/** A note with two revisions that know nothing of each other. */
async function conflicting(db: Pouch): Promise<string> {
  const id = 'note:1'
  const branch = (rev: string, title: string) => ({ _id: id, _rev: rev, title, body: title, updatedAt: 1 })
  const write = db as unknown as { bulkDocs(docs: object[], options: object): Promise<unknown> }
  await write.bulkDocs([branch('1-a', 'one'), branch('1-b', 'other')], { new_edits: false })
  return id
}

t.test('the library shows what is there, and what comes', async (t) => {
  const library = new Library(database(t))
  const first = await addNote(library.db, { title: 'First' })
  await library.open()
  t.same(
    library.value.notes.map(({ title }) => title),
    ['First'],
  )
  const until = (holds: () => boolean) =>
    new Promise<void>((resolve) => {
      const end = library.subscribe(() => holds() && resolve(end()))
      if (holds()) resolve(end())
    })
  const bookId = await library.addBook(' Kitchen ')
  const tag = await library.addTag('Slow Food')
  t.equal(await library.addTag('slow  food'), tag, 'the same tag')
  await addNote(library.db, { title: 'Second', body: 'of bread', bookId, tags: [tag] })
  await until(() => library.value.notes.length === 2 && library.value.books.length === 1)
  t.same(notesOn(library.value, { kind: 'book', id: bookId }, '').length, 1)
  t.same(notesOn(library.value, { kind: 'tag', id: tag }, 'BREAD second').length, 1)
  t.same(notesOn(library.value, { kind: 'all' }, 'cheese').length, 0)
  await removeAll(library.db, first)
  await until(() => library.value.notes.length === 1)
  t.equal(library.value.notes[0]?.title, 'Second')
})

t.test('what is no picture, or too large a one, is refused in words', async (t) => {
  const db = database(t)
  const library = new Library(db)
  const file = (name: string, type: string, size: number) => new File([new Uint8Array(size)], name, { type })
  await t.rejects(library.addPicture(file('a.txt', 'text/plain', 1)), { message: 'a.txt is not a picture.' })
  const large = file('b.png', 'image/png', LARGEST_PICTURE + 1)
  await t.rejects(library.addPicture(large), { message: 'b.png is larger than 10 MB.' })
  t.equal((await db.allDocs({})).rows.length, 0)
})

t.test('a draft is written onto what it was written over', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One' })
  const draft = new Draft(db, noteOf(await db.get(id)), HERE)
  draft.change({ body: 'a' })
  draft.change({ body: 'ab' })
  await draft.save()
  draft.change({ title: 'Two' })
  await draft.save()
  t.match(await db.get(id), { title: 'Two', body: 'ab' })
  t.match((await db.get(id))._rev, /^3-/)
})

t.test('an edit that comes in between is a conflict, and neither is lost', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One' })
  const note = noteOf(await db.get(id))
  const draft = new Draft(db, note, HERE)
  draft.change({ body: 'mine' })
  await db.put({ ...(await db.get(id)), body: 'theirs' })
  const theirs = noteOf(await db.get(id))
  t.notOk(draft.follow(theirs), 'an unsaved draft is not replaced')
  await draft.save()
  const versions = await versionsOf(db, id)
  t.same(versions.map(({ body }) => body).sort(), ['mine', 'theirs'])
})

t.test('a draft follows another device while nothing is unsaved', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One' })
  const draft = new Draft(db, noteOf(await db.get(id)), HERE)
  await db.put({ ...(await db.get(id)), body: 'theirs' })
  t.ok(draft.follow(noteOf(await db.get(id))))
  t.equal(draft.text.body, 'theirs')
  draft.change({ body: 'mine' })
  await draft.save()
  t.same((await versionsOf(db, id)).length, 1)
})

t.test('a conflict is resolved by either version, or by all', async (t) => {
  for (const at of [0, 1]) {
    const db = database(t)
    const versions = await versionsOf(db, await conflicting(db))
    t.equal(versions.length, 2)
    const kept = versions[at]
    if (kept === undefined) throw new Error('no version')
    await keep(db, versions, kept)
    const left = await versionsOf(db, 'note:1')
    t.same(
      left.map(({ title }) => title),
      [kept.title],
    )
  }
  const db = database(t)
  await keepAll(db, await versionsOf(db, await conflicting(db)))
  const { rows } = await db.allDocs({ include_docs: true, conflicts: true })
  t.same(rows.map(({ doc }) => doc?.body).sort(), ['one', 'other'])
  t.ok(rows.every(({ doc }) => doc?._conflicts === undefined))
})

t.test(
  'an edit that comes in while a conflict is resolved is in conflict again, and no side is lost',
  async (t) => {
    for (const at of [0, 1]) {
      const db = database(t)
      const versions = await versionsOf(db, await conflicting(db))
      const [winner] = versions
      const kept = versions[at]
      if (winner === undefined || kept === undefined) throw new Error('no version')
      await db.put({ _id: 'note:1', _rev: winner.rev, title: 'later', body: 'later', updatedAt: 2 })
      await keep(db, versions, kept)
      const left = (await versionsOf(db, 'note:1')).map(({ body }) => body).sort()
      t.same(
        left,
        at === 0 ? ['later'] : ['later', 'other', 'one'].filter((body) => body !== winner.body).sort(),
      )
    }
  },
)

t.test('a version goes only when its copy is there', async (t) => {
  const db = database(t)
  const versions = await versionsOf(db, await conflicting(db))
  const full = { bulkDocs: async () => [{ status: 507, message: 'no room' }] }
  await t.rejects(keepAll(full, versions), { message: 'no room' })
  await t.rejects(keep(full, versions, versions[0] as Note), { message: 'no room' })
  t.equal((await versionsOf(db, 'note:1')).length, 2)
})

t.test('what could not be saved is saved later, and its writer hears of it', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One' })
  let isFull = true
  const put: Pouch['put'] = async (doc) => {
    if (isFull) throw { status: 500, reason: 'no room' }
    return db.put(doc)
  }
  const draft = new Draft({ put }, noteOf(await db.get(id)), HERE)
  draft.change({ body: 'precious' })
  await draft.save()
  t.equal(draft.fault.value, 'no room')
  t.equal(draft.text.body, 'precious')
  isFull = false
  draft.change({ title: 'Two' })
  await draft.save()
  t.equal(draft.fault.value, null)
  t.match(await db.get(id), { title: 'Two', body: 'precious' })
  isFull = true
  draft.change({ body: 'not wanted' })
  await draft.save()
  await draft.discard()
  isFull = false
  await draft.save()
  t.match(await db.get(id), { body: 'precious' }, 'a discarded save is not repeated')
})

t.test('who never pauses is saved all the same', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One' })
  const draft = new Draft(db, noteOf(await db.get(id)), HERE)
  let words = ''
  while ((await db.get(id)).body === '') {
    words += 'x'
    draft.change({ body: words })
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  await draft.save()
  t.equal((await db.get(id)).body, words)
})

t.test('a draft goes back neither to its own past nor to the other side of a conflict', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One' })
  const first = noteOf(await db.get(id))
  const draft = new Draft(db, first, HERE)
  draft.change({ body: 'mine' })
  await draft.save()
  t.notOk(draft.follow(first), 'the list of notes may be late')
  t.equal(draft.text.body, 'mine')
  const write = db as unknown as { bulkDocs(docs: object[], options: object): Promise<unknown> }
  const theirs = { _id: id, _rev: '9-f', title: 'One', body: 'theirs' }
  await write.bulkDocs([theirs], { new_edits: false })
  const [winner] = await versionsOf(db, id)
  t.equal(winner?.body, 'theirs')
  t.notOk(draft.follow(winner as Note), 'what somebody writes does not turn into another text')
  draft.change({ body: 'mine, and more' })
  await draft.save()
  const versions = await versionsOf(db, id)
  t.same(versions.map(({ body }) => body).sort(), ['mine, and more', 'theirs'])
  await keep(db, versions, winner as Note)
  t.ok(draft.follow(noteOf(await db.get(id, { conflicts: true }))), 'resolved, it follows')
  t.equal(draft.text.body, 'theirs')
})

t.test('an edit outlives a deletion that knew nothing of it', async (t) => {
  const [one, other] = [database(t), database(t)]
  const id = await addNote(one, { title: 'One' })
  const both = one as unknown as { sync(other: unknown): Promise<unknown> }
  await both.sync(other)
  const draft = new Draft(other, noteOf(await other.get(id)), HERE)
  await removeAll(one, id)
  draft.change({ body: 'written meanwhile' })
  await draft.save()
  await both.sync(other)
  for (const db of [one, other]) {
    const versions = await versionsOf(db, id)
    t.same(
      versions.map(({ body }) => body),
      ['written meanwhile'],
    )
  }
  draft.change({ body: 'and after it has come' })
  await removeAll(other, id)
  await draft.save()
  t.equal((await other.get(id)).body, 'and after it has come', 'typed while the deletion came in')
})

t.test('lines are compared: what is common is the same on both sides, in order', async () => {
  const text = fc
    .array(fc.constantFrom('a', 'b', 'c', ''), { maxLength: 12 })
    .map((lines) => lines.join('\n'))
  fc.assert(
    fc.property(text, text, (one, other) => {
      const [left, right] = compareLines(one, other)
      const texts = (lines: typeof left) => lines.map((line) => line.text).join('\n')
      const common = (lines: typeof left) => lines.filter((line) => line.isCommon).map((line) => line.text)
      return (
        texts(left) === one &&
        texts(right) === other &&
        JSON.stringify(common(left)) === JSON.stringify(common(right)) &&
        (one !== other || common(left).length === left.length)
      )
    }),
  )
})

t.test('the sides of a conflict say who wrote them', async (t) => {
  const by = (id: string, name: string) => ({ device: { id, name } })
  t.same(writersOf([by('here', 'Desk'), by('b123456', 'Phone'), { device: null }], HERE), [
    'this device',
    'Phone',
    null,
  ])
  t.same(writersOf([by('b123456', 'Phone'), by('c123456', 'Phone')], HERE), ['Phone (b123)', 'Phone (c123)'])
})

t.test('small things', async (t) => {
  t.equal(tagId('  Slow  Food '), 'tag:slow-food')
  t.notMatch(tagId('Profile: work, file:x'), /file:/, 'a mobile device takes every tag')
  t.equal(
    excerptOf('# Head\n\n- [x] done\n![p](file:1) and [a link](http://x) **bold**'),
    'Head done and a link bold',
  )
  t.match(noteOf({ _id: 'note:1', _rev: '1-a', title: 1, tags: ['a', 2] }), {
    title: '',
    tags: ['a'],
    updatedAt: 0,
  })
  for (const time of [1e300, -1e300, 8.64e15 + 1, '1', null]) {
    const { updatedAt, createdAt } = noteOf({ _id: 'note:1', _rev: '1-a', updatedAt: time, createdAt: time })
    t.ok(new Date(updatedAt).toISOString() && new Date(createdAt).toISOString(), `${time} can be shown`)
  }
})

t.test(
  'a new note is stored with its first word, signed by the device, and with what it was given',
  async (t) => {
    const db = database(t)
    const draft = new Draft(db, freshNote('note:new', { bookId: 'book:1' }), HERE)
    await draft.save()
    draft.change({ tags: ['tag:x'] })
    draft.change({ title: ' ' })
    await draft.save()
    await t.rejects(db.get('note:new'), { name: 'not_found' }, 'nothing is written, nothing is stored')
    draft.change({ title: 'A word' })
    await draft.save()
    t.match(await db.get('note:new'), { title: 'A word', bookId: 'book:1', tags: ['tag:x'], device: HERE })
    draft.change({ title: '' })
    await draft.save()
    t.match(await db.get('note:new'), { title: '' }, 'a stored note may become empty')
    t.same(noteOf(await db.get('note:new')).device, HERE)
  },
)

t.test('an edit keeps the members that another app has written', async (t) => {
  const db = database(t)
  const id = await addNote(db, { title: 'One', pinned: true })
  const draft = new Draft(db, noteOf(await db.get(id)), HERE)
  draft.change({ title: 'Two' })
  await draft.save()
  t.match(await db.get(id), { title: 'Two', pinned: true })
  await db.put({ ...(await db.get(id)), pinned: 'since' })
  t.ok(draft.follow(noteOf(await db.get(id, { conflicts: true }))))
  draft.change({ title: 'Three' })
  await draft.save()
  t.match(await db.get(id), { title: 'Three', pinned: 'since' })
})
