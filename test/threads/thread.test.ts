/** The HTTP thread's end of a port. The other end is a thread that replies by script. */
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { outgoingMemory } from '../../src/core/bytes.ts'
import { AMPLE_SPACE, DEFAULT_SETTINGS } from '../../src/core/types.ts'
import { SlotTable } from '../../src/sandbox/slot-table.ts'
import { StreamReader } from '../../src/threads/rpc-stream.ts'
import { Thread, threadFlags } from '../../src/threads/thread.ts'
import type { ThreadEvent, ThreadOptions } from '../../src/threads/thread-protocol.ts'

const ENTRY = new URL('./scripted-thread.mjs', import.meta.url)
const OPTIONS: ThreadOptions = {
  location: { kind: 'files', dataDir: '' },
  settings: DEFAULT_SETTINGS,
  space: AMPLE_SPACE,
  maxOpen: 1,
  outgoing: outgoingMemory(),
  sandbox: { slotTable: new SlotTable().memory, client: 1 },
}

function scripted(t: Test) {
  const events: ThreadEvent[] = []
  const thread = new Thread(ENTRY, OPTIONS, (event) => events.push(event))
  t.teardown(() => thread.stop())
  const entry = { name: 'd', incarnation: 1 }
  return {
    thread,
    events,
    ask: (script: unknown) => thread.callMethod(entry, undefined, 'info', [script]),
    stream: (script: unknown) =>
      new StreamReader(() => thread.streamMethod(entry, undefined, 'allDocs', [script])),
  }
}

const chunk = (text: string) => ({ type: 'chunk', chunk: new Uint8Array(Buffer.from(text)) })
const end = { type: 'end' }
const failed = { type: 'failed', error: { code: 'conflict', reason: 'it is taken', cause: undefined } }

async function texts(stream: AsyncIterable<Uint8Array>): Promise<string[]> {
  const found: string[] = []
  for await (const bytes of stream) found.push(Buffer.from(bytes).toString())
  return found
}

t.test('answers reach their callers', async (t) => {
  const { ask } = scripted(t)
  const answers = [1, { a: 2 }, null, undefined].map((value) => ask([{ type: 'answer', value }]))
  t.same(await Promise.all(answers), [1, { a: 2 }, null, undefined])
  await t.rejects(ask([failed]), { code: 'conflict', reason: 'it is taken' })
})

t.test('a stream gives its chunks and ends, or throws', async (t) => {
  const { stream } = scripted(t)
  t.same(await texts(stream([chunk('a'), chunk('b'), end])), ['a', 'b'])
  t.same(await texts(stream([end])), [])
  await t.rejects(texts(stream([failed])), { code: 'conflict' }, 'before its first chunk')
  await t.rejects(texts(stream([chunk('a'), failed])), { code: 'conflict' }, 'after it')
})

t.test(
  'a stream sends nothing before it is read, and then pulls a chunk for each one consumed',
  async (t) => {
    const { stream, ask } = scripted(t)
    const chunks = stream([chunk('a'), chunk('b')])
    t.match(await ask('seen'), { next: 0 })
    await chunks.next()
    t.match(await ask('seen'), { next: 0, cancel: 0 })
    await chunks.next()
    t.match(await ask('seen'), { next: 1 })
    t.notOk(chunks.isAtEnd)
    await chunks.return()
    t.match(await ask('seen'), { next: 1, cancel: 1 })
  },
)

t.test('a stream that has ended is known to be at its end, and is not asked for more', async (t) => {
  const { stream, ask } = scripted(t)
  const chunks = stream([chunk('a'), { type: 'chunk', chunk: 'b' }, end])
  t.match(await chunks.next(), { value: Buffer.from('a') })
  t.notOk(chunks.isAtEnd)
  t.match(await chunks.next(), { value: Buffer.from('b') }, 'short bytes travel as a text')
  t.ok(chunks.isAtEnd)
  t.match(await chunks.next(), { done: true })
  t.match(await chunks.next(), { done: true })
  t.match(await ask('seen'), { next: 0, cancel: 0 })
  const broken = stream([chunk('a'), failed])
  await broken.next()
  t.notOk(broken.isAtEnd, 'its error is not read yet')
  await t.rejects(broken.next(), { code: 'conflict' })
})

t.test('a reader that stops early cancels, and waits until the thread has ended the stream', async (t) => {
  const { stream, ask } = scripted(t)
  for await (const _ of stream([chunk('a'), chunk('late')])) break
  t.match(await ask('seen'), { cancel: 1 })
  const unread = stream([chunk('a')])
  await unread.return()
  t.match(await ask('seen'), { cancel: 1 }, 'the thread does not know a stream that was never read')
})

t.test('a stream that fails after its reader has stopped has no effect', async (t) => {
  const { stream, ask } = scripted(t)
  const chunks = stream([chunk('a'), chunk('b'), failed])
  await chunks.next()
  await chunks.return()
  t.equal(await ask([{ type: 'answer', value: 'fine' }]), 'fine')
})

t.test('replies to unknown calls are ignored, and events are reported', async (t) => {
  const { ask, events } = scripted(t)
  const event = { type: 'committed', incarnation: 3, updateSeq: 7 }
  await ask([
    { type: 'answer', call: 999 },
    { ...chunk('stray'), call: 998 },
    event,
    { type: 'answer', value: 1 },
  ])
  t.match(events, [event])
})

t.test('when a thread dies, its calls fail, and so do later ones', async (t) => {
  const { thread, ask, stream } = scripted(t)
  const calls = [ask([]), ask([])]
  const chunks = stream([chunk('a')])
  await chunks.next()
  const reading = chunks.next()
  const dying = ask('die')
  for (const waiting of [...calls, reading, dying]) await t.rejects(waiting, { code: 'unavailable' })
  t.match(await thread.ended, { message: 'the thread has died' })
  t.equal(thread.isRunning, false)
  await t.rejects(ask([]), { code: 'unavailable' })
  await t.rejects(texts(stream([])), { code: 'unavailable' })
  thread.notify({ type: 'settings', settings: DEFAULT_SETTINGS })
})

t.test('a reader can stop reading a stream whose thread has died', async (t) => {
  const { stream, ask } = scripted(t)
  const chunks = stream([chunk('a')])
  await chunks.next()
  await t.rejects(ask('die'))
  t.match(await chunks.return(), { done: true })
})

t.test('the error of a dead thread has its cause', async (t) => {
  const { ask } = scripted(t)
  const error = await ask('die').catch((thrown: Error) => thrown)
  t.match((error as Error).cause, { message: 'the thread has died' })
})

t.test('stopping is idempotent and leaves no fault', async (t) => {
  const { thread, ask } = scripted(t)
  await ask('seen')
  await Promise.all([thread.stop(), thread.stop()])
  await thread.stop()
  t.equal(await thread.ended, undefined)
})

t.test('a missing entry file counts as the death of the thread', async (t) => {
  const none = () => undefined
  const thread = new Thread(new URL('./no-such-file.mjs', import.meta.url), OPTIONS, none)
  await t.rejects(thread.ask({ type: 'stop' }), { code: 'unavailable' })
  t.match(await thread.ended, { code: /MODULE_NOT_FOUND$/ })
  await thread.stop()
  await turn()
})

t.test('a thread takes over some flags of the process', async (t) => {
  const flags = ['--max-old-space-size=100', '--cpu-prof', '--input-type=module', '--trace-gc', '--expose-gc']
  t.same(threadFlags(flags), ['--cpu-prof'])
})
