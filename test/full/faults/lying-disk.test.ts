/** A disk that returns wrong bytes and errors at random while a server reads everything by every way. */
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { startOnBadMachine } from '../../faults/bad-machine.ts'
import type { End } from '../../faults/server-process.ts'
import { readAll, Truth } from '../../faults/whole-folder/readings.ts'
import { callerOf, makeTemplate } from '../../faults/whole-folder/template.ts'
import { reached, temporaryFolder } from '../../helpers/server.ts'

/** How often the disk lies before the test ends. */
const LIES = Number(process.env.SETTEE_LIES ?? 150)
const DATABASES = 3
/** A database is opened again for the next one's sake, so that its pages are read from the disk each time. */
const INI = '[couchdb]\nmax_dbs_open = 1\n'

t.test(
  'no answer is what a lying disk has said, and a backup restores what it made settee store',
  async (t) => {
    const template = await makeTemplate(t, DATABASES, 'late')
    const dataDir = join(await temporaryFolder(t), 'data')
    await cp(template.folder, dataDir, { recursive: true })
    const machine = await startOnBadMachine(t, { dataDir, ini: INI })
    const server = reached(t, machine.url, { ...machine, secureUrl: '', stop: async () => undefined })
    const truth = new Truth(await readAll(server, template), template)
    const errors = new Map<string, number>()
    let end: End | null = null
    void machine.ended().then((ended) => {
      end = ended
    })
    machine.fail({ wrongReads: 12, failedReads: 40 })
    for (let before = -1; machine.told().wrong < LIES; ) {
      const { wrong } = machine.told()
      t.ok(wrong > before, `the disk has lied in the last round, ${wrong} times so far`)
      before = wrong
      const found = await readAll(server, template)
      t.equal(end, null, 'the server goes on')
      for (const [error, times] of found.errors) errors.set(error, (errors.get(error) ?? 0) + times)
      t.same(truth.wrongIn(found), [], 'no answer is what the disk said')
      if (!t.passing()) break
    }
    const { wrong, failed } = machine.told()
    t.comment(`wrong reads: ${wrong}, failed: ${failed}`, Object.fromEntries(errors))
    machine.fail({})
    await machine.stop()
    await machine.start()
    // A page that was read wrong, and then written because another part of it had changed, stays wrong.
    const { call } = callerOf(server)
    await call('POST', '/_settee/check', { repair: true })
    const check = async () => {
      for (;;) {
        const { running, last, damaged } = await call('GET', '/_settee/check')
        if (running === null && last !== null) return damaged as { database: string }[]
        await delay(20)
      }
    }
    const left = (await check()).map(({ database }) => database)
    t.comment('restored as a whole', left)
    const path = `/_settee/backups/${template.backup}/restore`
    for (const database of left) await call('POST', path, { database })
    const after = await readAll(server, template)
    t.same(truth.wrongIn(after), [], 'nothing wrong was stored')
    // An index that was made meanwhile lacks what could not be read then, until it is written again.
    const missing = truth.missingIn(after).filter((name) => !/_view|_find/.test(name))
    t.same(missing, [], 'everything is there')
    t.match(await machine.stop(), { code: 0 })
  },
)
