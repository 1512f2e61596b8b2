/** The winner among revisions whose ids have different forms, and one that an older settee chose in another order. */
import t from 'tap'
import type { DocWrite } from '../../src/storage/engine.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { ENGINES } from './engines.ts'
import { openOn } from './helpers.ts'

const HEX = `96${'0'.repeat(30)}`

for (const [name, makeEngine] of Object.entries(ENGINES)) {
  t.test(`${name}: a winner that an older settee chose holds until the next write`, async (t) => {
    const { database, store, get, put, replicate } = await openOn(await makeEngine(t), {}, localSandbox())
    const leaf = (id: string) => ({
      rev: `1-${id}`,
      deleted: false,
      ancestry: [id],
      content: { body: `{"from":"${id}"}`, attachments: [] },
    })
    const write: DocWrite = {
      rev: '1-zz',
      deleted: false,
      sequenced: true,
      revisions: [leaf(HEX), leaf('zz')],
    }
    for (const id of ['grown', 'resolved']) {
      await store.updateDocs([{ id, bytes: 0, decide: () => ({ result: null, write }) }])
      t.strictSame(await get(id, { conflicts: true }), {
        _id: id,
        _rev: '1-zz',
        _conflicts: [`1-${HEX}`],
        from: 'zz',
      })
    }
    await replicate('grown', { start: 1, ids: ['9'] })
    t.match(await get('grown', { conflicts: true }), {
      _rev: `1-${HEX}`,
      from: HEX,
      _conflicts: ['1-zz', '1-9'],
    })
    await database.remove({ name: 'root', roles: ['_admin'] }, 'resolved', `1-${HEX}`)
    t.match(await get('resolved', { conflicts: true }), { _rev: '1-zz', from: 'zz', _conflicts: undefined })
    t.ok(await put('resolved', { _rev: '1-zz' }))
  })
}
