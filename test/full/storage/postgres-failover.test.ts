import t, { type Test } from 'tap'
import type { CouchError } from '../../../src/core/errors.ts'
import { startPostgres, startStandby } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'
import { put, readOne } from '../../storage/conformance/edits.ts'
import { errorOf, only, resultOf } from '../../storage/conformance/setup.ts'
import { openCuttable } from '../../storage/postgres/cuttable-database.ts'

t.setTimeout(120_000)

t.test('a write of which nobody can learn whether it is stored is not answered as stored', async (t) => {
  const { store, network, before } = await openCuttable(t, await startPostgres(t))
  before.set('store_doc', () => {
    network.cut()
    setImmediate(() => network.reset())
  })
  const writing = store.updateDocs([put('a')])
  const code = (errorOf((await writing)[0]) as CouchError).code
  t.equal(code, 'store_unavailable')
  network.mend()
  await until(() => store.updateDocs([put('b')]).then(([outcome]) => errorOf(outcome) === undefined))
  t.equal(await readOne(store, 'a'), null)
})

/** Puts a document on a primary, so that its answer is lost and a standby takes over before anybody asks. */
async function failOver(t: Test, { isCopied }: { readonly isCopied: boolean }) {
  const primary = await startPostgres(t)
  const opened = await openCuttable(t, primary)
  const { store, network, before, stored } = opened
  await only(store.updateDocs([put('before')]))
  const standby = await startStandby(t, primary)
  await standby.caughtUp()
  if (!isCopied) await standby.disconnect()
  const events: string[] = []
  store.onEvent(({ type }) => events.push(type))
  const isSent = Promise.withResolvers<void>()
  before.set('store_doc', () => {
    network.withholdAnswers()
    isSent.resolve()
  })
  const writing = store.updateDocs([put('a')])
  await isSent.promise
  await until(async () => (await stored()) === 2)
  if (isCopied) await standby.caughtUp()
  await primary.stop('immediate')
  await standby.promote()
  await until(async () => (await standby.query('SELECT pg_is_in_recovery() AS yes'))[0]?.yes === false)
  network.redirect(standby.port)
  network.mend()
  return { ...opened, outcome: (await writing)[0], events }
}

t.test('a write that the new primary does not have is not answered as stored', async (t) => {
  const { engine, outcome, events } = await failOver(t, { isCopied: false })
  t.equal((errorOf(outcome) as CouchError).code, 'store_unavailable')
  t.ok(events.includes('deleted'), 'feeds end, since numbers go back')
  const reopened = await engine.openDatabase('notes')
  t.equal(await readOne(reopened, 'a'), null)
  t.not(await readOne(reopened, 'before'), null)
  const view = await reopened.view()
  t.hasStrict(view, { wasRestored: true, updateSeq: 1 })
  t.equal(view.epochs.length, 2, 'the next numbers have another epoch')
  await only(reopened.updateDocs([put('a')]))
})

t.test('a write that the new primary has is answered as stored', async (t) => {
  const { engine, outcome } = await failOver(t, { isCopied: true })
  const rev = resultOf<string, never>(outcome)
  t.equal((await readOne(await engine.openDatabase('notes'), 'a'))?.rev, rev)
})
