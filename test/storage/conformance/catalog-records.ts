import { FaultHook } from './fault-hook.ts'
import type { StorageCases } from './setup.ts'

const record = (kind: string, key: string, value: string) => ({ kind, key, value })

/** What the server keeps beside its databases. */
export const catalogRecordCases: StorageCases = {
  'records are set, replaced and removed by kind and key': async (t, makeEngine) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    t.same(await catalog.readRecords('token'), [])
    await catalog.writeRecords([
      record('token', 'b', '1'),
      record('token', 'a', '"2"'),
      record('tenant', 'a', '{}'),
    ])
    t.same(await catalog.readRecords('token'), [record('token', 'a', '"2"'), record('token', 'b', '1')])
    t.same(await catalog.readRecords('tenant'), [record('tenant', 'a', '{}')])
    await catalog.writeRecords([record('token', 'a', '3'), { kind: 'token', key: 'b', value: null }])
    t.same(await catalog.readRecords('token'), [record('token', 'a', '3')])
    await catalog.writeRecords([{ kind: 'token', key: 'none', value: null }])
    await catalog.writeRecords([])
    t.same(await catalog.readRecords('token'), [record('token', 'a', '3')])
  },

  'records come in the order of their keys\u2019 bytes, and of one key the last word counts': async (
    t,
    makeEngine,
  ) => {
    const catalog = await (await makeEngine(t)).engine.openCatalog()
    const keys = ['\u{1f600}', 'ü', 'b', 'a', '', '\ufffd']
    await catalog.writeRecords(keys.map((key) => record('k', key, 'v')))
    const order = (await catalog.readRecords('k')).map(({ key }) => key)
    t.same(order, ['', 'a', 'b', 'ü', '\ufffd', '\u{1f600}'])
    await catalog.writeRecords([
      { kind: 'k', key: 'a', value: null },
      record('k', 'a', 'w'),
      record('k', 'a', 'x'),
    ])
    t.same((await catalog.readRecords('k')).find(({ key }) => key === 'a')?.value, 'x')
  },

  'records outlive the engine': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    await catalog.writeRecords([record('token', 'a', '1')])
    await engine.close()
    const again = await (await reopen()).openCatalog()
    t.same(await again.readRecords('token'), [record('token', 'a', '1')])
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
      t.same(await catalog.readRecords('token'), [record('token', 'a', '1')])
    }
  },
}
