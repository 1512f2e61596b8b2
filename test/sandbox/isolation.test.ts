/** Functions share nothing: not with other functions, and not with other databases. */
import t from 'tap'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { filterOf, mapOf } from './functions.ts'

const sandbox = localSandbox()

t.test('a function that bends its world bends no other', async (t) => {
  const bending = filterOf(`function (doc) {
    Object.prototype.polluted = 1
    Array.prototype.toJSON = function () { return 'bent' }
    JSON.parse = JSON.stringify = String = undefined
    emit = isArray = require = undefined
    globalThis.left = 1
    return true
  }`)
  t.same(await sandbox.filter(bending, ['{}', '{}'], '{}'), [true, true])
  const clean = `function (doc) { emit(typeof doc.polluted + typeof left + toJSON([1]) + typeof require) }`
  const expected = ['[["undefinedundefined[1]function",null]]']
  t.same(await sandbox.map(mapOf(clean), ['{}']), expected)
  t.same(await sandbox.map({ ...mapOf(clean), database: 2 }, ['{}']), expected)
})

t.test('the same function of another database, or of another revision, is another one', async (t) => {
  const fn = filterOf(`(function () { var n = 0; return function () { throw String(n += 1) } })()`)
  const count = (database: number, rev = '1-a') =>
    sandbox.filter({ ...fn, database, rev }, ['{}'], '{}').catch((error) => error.reason)
  t.equal(await count(1), '1')
  t.equal(await count(1), '2')
  t.equal(await count(2), '1')
  t.equal(await count(1, '2-b'), '1')
  t.equal(await count(1), '3')
})

t.test('what a map emits is a list of pairs, whatever it does to the language', async (t) => {
  const fn = mapOf(`function (doc) {
    Array.prototype.toJSON = Object.prototype.toJSON = function () { return 'bent' }
    String.prototype.toJSON = undefined
    emit('a', [1])
  }`)
  const [rows = ''] = await sandbox.map(fn, ['{}'])
  t.same(JSON.parse(rows), [['a', 'bent']])
})

t.test('a hundred functions in turn', async (t) => {
  const fns = Array.from({ length: 100 }, (_, i) => filterOf(`function (doc) { return doc.i === ${i} }`))
  for (let round = 0; round < 2; round += 1) {
    for (const [i, fn] of fns.entries()) {
      t.same(await sandbox.filter(fn, [`{"i":${i}}`, '{"i":-1}'], '{}'), [true, false])
    }
  }
})

t.test('many documents, and a large one among small ones', async (t) => {
  const docs = Array.from({ length: 3000 }, (_, i) =>
    JSON.stringify({ i, text: i === 1500 ? 'x'.repeat(2_000_000) : '' }),
  )
  const passes = await sandbox.filter(filterOf('function (doc) { return doc.i % 2 === 0 }'), docs, '{}')
  t.same(
    passes,
    docs.map((_, i) => i % 2 === 0),
  )
  t.same(await sandbox.filter(filterOf('function () {}'), [], '{}'), [])
})
