/** Equal requests within a short time share one answer, and none sees an answer from before a change. */
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { RemoteStream, StreamReader } from '../../src/threads/rpc-stream.ts'
import { SharedAnswers, sharedBodyText } from '../../src/threads/shared-answers.ts'
import { ADMIN, body, text } from '../documents/helpers.ts'
import { put, serve } from './served.ts'

/** Answers to a key, and the streams that were asked for, which the test answers. */
function asked() {
  const answers = new SharedAnswers()
  const streams: RemoteStream[] = []
  const ask = () => {
    const stream = new RemoteStream('db', (type) => type === 'cancel' && stream.end())
    streams.push(stream)
    return new StreamReader(() => stream)
  }
  const read = (key: string) => answers.read(key, ask)
  const send = (index: number, ...chunks: string[]) => {
    for (const chunk of chunks) streams[index]?.chunk(chunk)
    streams[index]?.end()
  }
  return { read, send, streams }
}

t.test('equal requests share a short answer, under way or just given', async (t) => {
  const { read, send, streams } = asked()
  const early = [read('a'), read('a'), read('b')]
  const texts = early.map(text)
  send(0, 'one')
  send(1, 'two')
  t.same(await Promise.all(texts), ['one', 'one', 'two'])
  const late = read('a')
  t.same((await late.next()).value, Buffer.from('one'))
  t.match(late, { isAtEnd: true }, 'so that it is sent with its length')
  t.equal((await late.next()).done, true)
  t.equal(streams.length, 2)
})

t.test('a request whose equal fails, leaves, or has a long answer is sent by itself', async (t) => {
  const long = 'x'.repeat(20_000)
  const failure = new CouchError('no_database')
  const endings: [
    name: string,
    end: (first: AsyncIterator<unknown>, s: ReturnType<typeof asked>) => unknown,
  ][] = [
    ['fails', (_first, { streams }) => streams[0]?.fail(failure)],
    ['leaves', (first) => first.return?.()],
    ['long', (_first, { send }) => send(0, long)],
    ['in two parts', (_first, { send }) => send(0, 'one', 'two')],
  ]
  for (const [name, end] of endings) {
    const calls = asked()
    const [first, second] = [calls.read('a'), calls.read('a')]
    const ownText = text(second)
    await end(first, calls)
    if (name === 'fails') await t.rejects(first.next(), { code: 'no_database' })
    while (calls.streams.length < 2) await turn()
    calls.send(1, 'own')
    t.equal(await ownText, 'own', name)
  }
})

t.test('a reader that has ended asks nothing', async (t) => {
  const { read, send, streams } = asked()
  const [first, second] = [read('a'), read('a')]
  await second.return?.()
  send(0, 'one', 'two')
  t.equal(await text(first), 'onetwo')
  t.equal((await second.next()).done, true)
  t.equal(streams.length, 1)
})

t.test('bodies that may name local documents are not shared', (t) => {
  t.equal(sharedBodyText(body('{"docs":[{"id":"a"}]}')), '{"docs":[{"id":"a"}]}')
  t.equal(sharedBodyText(body('{"docs":[{"id":"_local/a"}]}')), null)
  t.equal(sharedBodyText(body('{"docs":[{"id":"\\u005flocal/a"}]}')), null)
  t.equal(sharedBodyText(body(`{"docs":[${' '.repeat(1024)}]}`)), null)
  t.equal(sharedBodyText({ file: 1, length: 2, sums: new Uint32Array(1) }), null)
  t.end()
})

t.test('a request never gets an answer from before a write that was answered', async (t) => {
  const notes = await notesOf(t)
  const wanted = () => text(notes.bulkGet(ADMIN, body({ docs: [{ id: 'x' }] }), {}))
  let hasEnded = false
  const others = Array.from({ length: 4 }, async () => {
    for (; !hasEnded; await turn()) await wanted()
  })
  let parent = ''
  for (let n = 0; n < 300; n += 1) {
    parent = await put(notes, 'x', JSON.stringify({ n, ...(parent && { _rev: parent }) }))
    if (!(await wanted()).includes(`"n":${n}}`)) t.fail(`write ${n} was not seen`)
  }
  await notes.purge(ADMIN, body({ x: [parent] }))
  t.match(await wanted(), 'not_found', 'an answer from before a purge is not shared')
  hasEnded = true
  await Promise.all(others)
})

t.test('a former member is refused at once', async (t) => {
  const notes = await notesOf(t)
  await put(notes, 'x')
  const user = { name: 'ann', roles: ['friends'] }
  const wanted = () => text(notes.bulkGet(user, body({ docs: [{ id: 'x' }] }), {}))
  await notes.setSecurity(ADMIN, { members: { names: ['ann'], roles: [] } })
  t.match(await wanted(), '"_id":"x"')
  t.match(await text(notes.bulkGet(ADMIN, body({ docs: [{ id: 'x' }] }), { revs: true })), '_revisions')
  await notes.setSecurity(ADMIN, { members: { names: ['bob'], roles: [] } })
  await t.rejects(wanted(), { code: 'forbidden' })
})

async function notesOf(t: Test) {
  const { databases } = await serve(t)
  await databases.create('notes')
  return databases.get('notes')
}
