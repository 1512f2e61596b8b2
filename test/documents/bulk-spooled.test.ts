/** Bodies that come in a file: the answers are those of bodies in memory, and what is held at a time is bounded. */
import { createHash } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import type { Body } from '../../src/documents/database.ts'
import { ADMIN, body, jsonOf, openDatabase, parse, spooled, text } from './helpers.ts'

const MB = 1024 * 1024

t.test('every call that takes a body answers alike', async (t) => {
  const docs = [{ _id: 'x', n: 1 }, { _id: 'y' }, { _id: 'x' }, { _id: '_local/l' }, { _id: 'ä\u{1f600}' }]
  const answers = async (given: (value: unknown) => Promise<Body> | Body) => {
    const { database } = await openDatabase()
    return [
      await jsonOf(database.bulkDocs(ADMIN, await given({ docs }))),
      (await database.put(ADMIN, 'z', await given({ n: 2 }), {})).rev,
      await jsonOf(database.bulkGet(ADMIN, await given({ docs: [{ id: 'x' }, { id: 'no' }] }), {})),
      parse(await database.revsDiff(ADMIN, await given({ x: ['1-a'] }))),
      parse(await database.missingRevs(ADMIN, await given({ x: ['1-a'] }))),
      await jsonOf(database.allDocs(ADMIN, 'all', {}, await given({ keys: ['x', 'no'] }))),
    ]
  }
  t.same(await answers((value) => spooled(t, JSON.stringify(value))), await answers(body))
})

t.test('a file that ends before its time is a fault', async (t) => {
  const { database, updateSeq } = await openDatabase()
  const given = (await spooled(t, '{"docs":[{}]}')) as { file: number; length: number }
  await t.rejects(jsonOf(database.bulkDocs(ADMIN, { ...given, length: 100 })))
  t.equal(await updateSeq(), 0)
})

/** Measures, while it runs, the longest turn of the event loop and the most memory held. */
async function measured<R>(work: () => Promise<R>): Promise<{ result: R; longest: number; held: number }> {
  let isRunning = true
  let longest = 0
  const before = process.memoryUsage.rss()
  let most = before
  const watch = async () => {
    for (let last = performance.now(); isRunning; ) {
      await turn()
      const now = performance.now()
      longest = Math.max(longest, now - last)
      last = now
      most = Math.max(most, process.memoryUsage.rss())
    }
  }
  const watching = watch()
  try {
    return { result: await work(), longest, held: most - before }
  } finally {
    isRunning = false
    await watching
  }
}

t.test('a bulk of 30 MB that the whole request is refused for stores nothing', async (t) => {
  const { database, updateSeq } = await openDatabase()
  const doc = JSON.stringify({ text: 'a'.repeat(10_000) })
  const docs = Array.from({ length: 3000 }, () => doc).join(',')
  const given = await spooled(t, `{"docs":[${docs},{"_zing":1}]}`)
  const { longest, held } = await measured(() =>
    t.rejects(jsonOf(database.bulkDocs(ADMIN, given)), { code: 'doc_validation' }),
  )
  t.equal(await updateSeq(), 0)
  t.comment(`checked 30 MB: longest turn ${longest.toFixed(1)} ms, ${(held / MB).toFixed(0)} MB more held`)
})

t.test('a bulk of 30 MB is written in groups', async (t) => {
  const { database, store } = await openDatabase()
  const docs = Array.from({ length: 3000 }, (_, n) =>
    JSON.stringify({ _id: String(n).padStart(5, '0'), text: 'a'.repeat(10_000) }),
  )
  const given = await spooled(t, `{"docs":[${docs.join(',')}]}`)
  let groups = 0
  const { result, longest, held } = await measured(async () => {
    let answer = ''
    for await (const chunk of database.bulkDocs(ADMIN, given)) {
      groups += 1
      answer += Buffer.from(chunk).toString()
    }
    return JSON.parse(answer)
  })
  t.equal(result.length, 3000)
  t.ok(groups >= 30, `${groups} groups of about a megabyte`)
  t.match(await store.view(), { updateSeq: 3000, docCount: 3000 })
  t.comment(`wrote 30 MB: longest turn ${longest.toFixed(1)} ms, ${(held / MB).toFixed(0)} MB more held`)
})

t.test('an attachment of 20 MB as base64 is taken in steps', async (t) => {
  const { database, put } = await openDatabase()
  const bytes = Buffer.alloc(20 * MB, 'settee')
  const doc = `{"_attachments":{"big":{"data":"${bytes.toString('base64')}"}}}`
  const { longest } = await measured(() => put('x', doc))
  const { length, digest } = await database.openAttachment(ADMIN, 'x', 'big', undefined)
  t.equal(length, bytes.length)
  t.equal(digest, `md5-${createHash('md5').update(bytes).digest('base64')}`)
  t.comment(`stored 20 MB of base64: longest turn ${longest.toFixed(1)} ms`)
})

t.test('a document in a file keeps its text', async (t) => {
  const { database } = await openDatabase()
  const given = '{"n":1.0,"ä":"\u{1f600}","2":1,"1":2}'
  await database.put(ADMIN, 'x', await spooled(t, given), {})
  t.match(await text(database.openRevs(ADMIN, 'x', 'all', {})), given.slice(1))
})
