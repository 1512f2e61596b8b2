import { collectRecords, type RecordWrite } from '../../../src/storage/records.ts'
import { FaultHook } from './fault-hook.ts'
import type { StorageCases } from './setup.ts'

const record = (kind: string, key: string, value: string) => ({ kind, key, value })

/** What the server keeps beside its databases. */
export const catalogRecordCases: StorageCases = {
  'records are set, replaced and removed by kind and key': async (t, makeEngine) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    t.same(await collectRecords(catalog, 'token'), [])
    await catalog.writeRecords([
      record('token', 'b', '1'),
      record('token', 'a', '"2"'),
      record('tenant', 'a', '{}'),
    ])
    t.same(await collectRecords(catalog, 'token'), [record('token', 'a', '"2"'), record('token', 'b', '1')])
    t.same(await collectRecords(catalog, 'tenant'), [record('tenant', 'a', '{}')])
    await catalog.writeRecords([record('token', 'a', '3'), { kind: 'token', key: 'b', value: null }])
    t.same(await collectRecords(catalog, 'token'), [record('token', 'a', '3')])
    await catalog.writeRecords([{ kind: 'token', key: 'none', value: null }])
    await catalog.writeRecords([])
    t.same(await collectRecords(catalog, 'token'), [record('token', 'a', '3')])
  },

  'records come in the order of their keys\u2019 bytes, and of one key the last word counts': async (
    t,
    makeEngine,
  ) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    const keys = ['\u{1f600}', 'ü', 'b', 'a', '', '\ufffd']
    await catalog.writeRecords(keys.map((key) => record('k', key, 'v')))
    const order = (await collectRecords(catalog, 'k')).map(({ key }) => key)
    t.same(order, ['', 'a', 'b', 'ü', '\ufffd', '\u{1f600}'])
    await catalog.writeRecords([
      { kind: 'k', key: 'a', value: null },
      record('k', 'a', 'w'),
      record('k', 'a', 'x'),
    ])
    t.same((await collectRecords(catalog, 'k')).find(({ key }) => key === 'a')?.value, 'x')
  },

  'records are read by key, and listed by prefix in pages': async (t, makeEngine) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    const keys = ['a', 'a/1', 'a/2', 'a/\u{10ffff}x', 'a0', 'a\u{d7ff}', 'a\u{d7ff}z', 'a\u{e000}', 'b\0c']
    await catalog.writeRecords([...keys, 'é'].map((key) => record('k', key, `"${key}"`)))
    t.same(await catalog.readRecords('k', ['b\0c', 'b', 'a/1', 'b\0c']), ['"b\0c"', null, '"a/1"', '"b\0c"'])
    t.same(await catalog.readRecords('other', ['a']), [null])
    const list = async (
      ...args: Parameters<typeof catalog.listRecords> extends [string, ...infer R] ? R : never
    ) => (await catalog.listRecords('k', ...args)).map(({ key }) => key)
    t.same(await list({ prefix: 'a/' }, 10), ['a/1', 'a/2', 'a/\u{10ffff}x'])
    t.same(await list({ prefix: 'a/\u{10ffff}' }, 10), ['a/\u{10ffff}x'])
    t.same(await list({ prefix: 'a\u{d7ff}' }, 10), ['a\u{d7ff}', 'a\u{d7ff}z'])
    t.same(await list({ prefix: 'a/', after: 'a/1' }, 1), ['a/2'])
    t.same(await list({ after: 'a0' }, 3), ['a\u{d7ff}', 'a\u{d7ff}z', 'a\u{e000}'])
    t.same(await list({ prefix: 'b', after: 'a' }, 10), ['b\0c'])
    t.same(await list({}, 0), [])
  },

  'a write that expects another value changes nothing': async (t, makeEngine) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    const write = (...writes: RecordWrite[]) => catalog.writeRecords(writes)
    t.equal(await write({ ...record('k', 'a', '1'), expected: null }, record('k', 'b', '1')), true)
    t.equal(await write(record('k', 'c', '1'), { ...record('k', 'a', '2'), expected: null }), false)
    t.equal(await write({ ...record('k', 'a', '2'), expected: '0' }, record('k', 'c', '1')), false)
    t.equal(await write({ kind: 'k', key: 'none', value: null, expected: 'x' }), false)
    t.same(await collectRecords(catalog, 'k'), [record('k', 'a', '1'), record('k', 'b', '1')])
    t.equal(
      await write(
        { ...record('k', 'a', '2'), expected: '1' },
        { kind: 'k', key: 'b', value: null, expected: '1' },
      ),
      true,
    )
    t.same(await collectRecords(catalog, 'k'), [record('k', 'a', '2')])
    const racing = ['3', '4', '5'].map((value) => write({ ...record('k', 'a', value), expected: '2' }))
    t.same((await Promise.all(racing)).filter(Boolean).length, 1, 'one of several at once is done')
  },

  'changes are told before the call resolves': async (t, makeEngine) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    const told: unknown[] = []
    const end = catalog.watch((change) => told.push(change))
    await catalog.writeRecords([record('k', 'a', '1'), record('l', 'b', '1'), record('k', 'c', '1')])
    t.same(told, [
      { type: 'records', kind: 'k', keys: ['a', 'c'] },
      { type: 'records', kind: 'l', keys: ['b'] },
    ])
    told.length = 0
    await catalog.writeRecords([{ ...record('k', 'a', '2'), expected: '9' }])
    t.same(told, [])
    await catalog.create('notes')
    t.same(told, [{ type: 'databases', names: ['notes'] }])
    await catalog.delete('notes')
    t.equal(told.length, 2)
    end()
    await catalog.writeRecords([record('k', 'a', '2')])
    t.equal(told.length, 2)
  },

  'records outlive the engine': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    await catalog.writeRecords([record('token', 'a', '1')])
    await engine.close()
    const again = await (await reopen()).openCatalog()
    t.same(await collectRecords(again, 'token'), [record('token', 'a', '1')])
  },

  'a fault leaves all records as they were': async (t, makeEngine) => {
    const hook = new FaultHook()
    const catalog = await (await makeEngine(t, { onOperation: hook.onOperation })).engine.openCatalog()
    await catalog.writeRecords([record('token', 'a', '1')])
    for (let at = 1; ; at++) {
      hook.arm(at, false)
      const failed = await catalog.writeRecords([record('token', 'a', '2'), record('token', 'b', '2')]).then(
        () => false,
        () => true,
      )
      if (hook.disarm() === null) break
      t.ok(failed, `operation ${at}`)
      t.same(await collectRecords(catalog, 'token'), [record('token', 'a', '1')])
    }
  },
}
