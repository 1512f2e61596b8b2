/** Functions that never end or use all memory: an error only for that call. */
import t, { type Test } from 'tap'
import { localSandbox } from '../../helpers/local-sandbox.ts'
import { filterOf, mapOf, validatorOf } from '../../sandbox/functions.ts'

const MB = 1_048_576
const sandbox = localSandbox({ timeoutMs: 300, memory: 32 * MB })

async function ends(t: Test, body: string, code: string | readonly string[]): Promise<void> {
  const started = performance.now()
  const failure = await sandbox
    .filter(filterOf(`function (doc) { ${body} }`), ['{}'], '{}')
    .catch((error) => error)
  t.ok([code].flat().includes(failure.code), `${body}: ${failure.code} ${failure.reason}`)
  t.ok(performance.now() - started < 5000, 'in time')
}

t.test('endless loops are stopped', async (t) => {
  await ends(t, 'for (;;);', 'function_timeout')
  await ends(t, 'try { for (;;); } catch (e) { return true } finally { for (;;); }', 'function_timeout')
  await ends(t, 'while (true) [1, 2, 3].sort().map(String)', 'function_timeout')
  await ends(t, `return /(a+)+$/.test('a'.repeat(40) + 'b')`, 'function_timeout')
  await ends(t, 'throw { toJSON: function () { for (;;); } }', 'function_timeout')
  await ends(t, 'return new Proxy({}, { get: function () { for (;;); } }).x', 'function_timeout')
})

t.test('endless loops are stopped while compiling, emitting and validating, too', async (t) => {
  const endless = { code: 'function_timeout' }
  await t.rejects(sandbox.compile(filterOf('(function () { for (;;); })()')), endless)
  await t.rejects(sandbox.map(mapOf('function () { emit({ toJSON() { for (;;); } }) }'), ['{}']), endless)
  const call = { newDoc: '{}', oldDoc: 'null', userCtx: '{}', security: '{}' }
  const judged = validatorOf('function () { throw { get forbidden() { for (;;); } } }')
  await t.rejects(sandbox.validate(judged, [call]), endless)
})

t.test('memory bombs are stopped', async (t) => {
  const stopped = ['function_memory', 'function_timeout']
  await ends(t, `var a = []; for (;;) a.push('abc'.repeat(100000))`, 'function_memory')
  await ends(t, `var a = []; for (;;) a.push(new Uint8Array(1000000))`, 'function_memory')
  await ends(t, `return new Uint8Array(1000000000).length`, 'function_memory')
  await ends(t, 'var a = []; for (;;) a.push({})', stopped)
  await ends(t, 'var a = []; for (;;) a.push(a.length)', stopped)
  await ends(t, `var s = 'x'; for (;;) s += s`, 'function_error')
  await ends(t, `var s = 'x'; for (;;) { s += s; s.charCodeAt(s.length - 1) }`, [
    ...stopped,
    'function_error',
  ])
  await ends(t, `return /(?:a|b)*c/.test('ab'.repeat(1000000))`, stopped)
  const emitting = mapOf(`function () { for (;;) emit('x'.repeat(10000), 1) }`)
  const failure = await sandbox.map(emitting, ['{}']).catch((error) => error)
  t.ok(stopped.includes(failure.code), failure.code)
})

t.test('endless recursion is an error of the function, even deep in the engine', async (t) => {
  await ends(t, 'function f() { return f() + 1 } return f()', 'function_error')
  await ends(t, 'var f = function () { return [1].map(f) }; return f()', 'function_error')
  await ends(t, `return JSON.parse('['.repeat(100000)).length`, 'function_error')
  await ends(t, `return eval('('.repeat(100000) + ')'.repeat(100000))`, 'function_error')
  await ends(
    t,
    'var p = {}; p = new Proxy(p, { get: function () { return p.x } }); return p.x',
    'function_error',
  )
})

t.test('the same function works again after it failed', async (t) => {
  const fn = filterOf(`function (doc) {
    if (doc.loop) for (;;);
    if (doc.bomb) { var a = []; for (;;) a.push('abc'.repeat(100000)) }
    if (doc.deep) return this.f(doc)
    return true
  }`)
  for (const bad of ['{"loop":1}', '{"bomb":1}', '{"deep":1}']) {
    await t.rejects(sandbox.filter(fn, [bad], '{}'))
    t.same(await sandbox.filter(fn, ['{}'], '{}'), [true])
  }
})

t.test('a function that keeps memory restarts when its memory is full', async (t) => {
  const fn = filterOf(
    `(function () { var all = []; return function (doc) { all.push('x'.repeat(1000000)); return true } })()`,
  )
  const docs = Array.from({ length: 100 }, () => '{}')
  t.same(
    await sandbox.filter(fn, docs, '{}'),
    docs.map(() => true),
  )
})

t.test('a document too large for the memory is an error of that call', async (t) => {
  const fn = filterOf('function (doc) { return doc.text.length > 0 }')
  await t.rejects(sandbox.filter(fn, [JSON.stringify({ text: 'x'.repeat(40 * MB) })], '{}'), {
    code: 'function_memory',
  })
  t.same(await sandbox.filter(fn, [JSON.stringify({ text: 'x'.repeat(MB) })], '{}'), [true])
})

t.test('unsettled promises are dropped', async (t) => {
  const fn = filterOf(
    `function (doc) { (async () => { await 1; globalThis.after = true })(); return globalThis.after }`,
  )
  t.same(
    await sandbox
      .filter(
        fn,
        Array.from({ length: 1000 }, () => '{}'),
        '{}',
      )
      .then((all) => all.length),
    1000,
  )
})

t.test('the memory of dropped functions is freed', async (t) => {
  const bomb = () =>
    sandbox.filter(
      filterOf(`function () { var a = []; for (;;) a.push('abc'.repeat(100000)) }`),
      ['{}'],
      '{}',
    )
  for (let i = 0; i < 20; i += 1) await t.rejects(bomb(), { code: 'function_memory' })
  t.ok(process.memoryUsage().rss < 450 * MB, '20 times 32 MB are not held')
})
