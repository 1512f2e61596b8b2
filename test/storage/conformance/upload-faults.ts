import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import type { BlobUpload } from '../../../src/storage/blob-leases.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { audit, auditContents } from './audit.ts'
import { put, readOne } from './edits.ts'
import { FaultHook } from './fault-hook.ts'
import { isStorageFault, untilUnharmed } from './faults.ts'
import { type MakeEngine, only, openNotes, type StorageCases } from './setup.ts'
import { naming, stageOf, untilSwept } from './uploads.ts'

const NAMED = randomBytes(600_000)
const UNNAMED = randomBytes(600_000)

interface Told {
  /** Whether the update that names the content was answered as done. */
  readonly named: boolean
  readonly errors: readonly unknown[]
}

/** Stages a content that is named, an equal one, and one that nothing names; then lets go of all. */
async function stageAll(store: DatabaseStore): Promise<Told> {
  const errors: unknown[] = []
  const stages: BlobUpload[] = []
  let named = false
  const attempt = async (work: () => Promise<void>) => {
    try {
      await work()
    } catch (error) {
      errors.push(error)
    }
  }
  const take = async (bytes: Buffer) => {
    const stage = await store.uploadBlob()
    stages.push(stage)
    await stage.append(bytes.subarray(0, 400_000))
    await stage.append(bytes.subarray(400_000))
    return stage.finish()
  }
  await Promise.all([
    attempt(async () => {
      const [outcome] = await store.updateDocs([naming('a', await take(NAMED))])
      if (outcome !== undefined && 'error' in outcome) errors.push(outcome.error)
      else named = true
    }),
    attempt(async () => void (await take(UNNAMED))),
  ])
  await attempt(async () => void (await take(NAMED)))
  await Promise.all(stages.map((stage) => stage.release()))
  return { named, errors }
}

async function stagingFaults(t: Test, makeEngine: MakeEngine, lasting: boolean): Promise<void> {
  await untilUnharmed(t, async (failAt) => {
    const hook = new FaultHook()
    const opened = await openNotes(t, makeEngine, { onOperation: hook.onOperation })
    await only(opened.store.updateDocs([put('seed')]))
    hook.arm(failAt, lasting)
    const { named, errors } = await stageAll(opened.store)
    const fired = hook.disarm()
    const when = `failed at ${fired ?? 'nothing'}`
    const isStrange = (error: unknown) => !isStorageFault(error)
    t.same(errors.filter(isStrange), [], `${when}: the errors are faults of the disk`)
    t.equal((await readOne(opened.store, 'a')) !== null, named, `${when}: stored is what was answered`)
    await checkGoesOn(t, opened.store, when)
    if (fired === null) await auditContents(t, opened, when)
    const again = await opened.reopen()
    await untilSwept(t, again, `${when}, and a restart later`)
    const doc = await readOne(again.store, 'a')
    const [stored] = doc?.revisions[0]?.attachments ?? []
    if (named) {
      const read = await again.store.readBlob(stored?.blob ?? -1, 0, NAMED.length)
      t.ok(read !== null && NAMED.equals(read), `${when}: the content is whole`)
    }
    await audit(t, again.store, when)
    await again.engine.close()
    return fired
  })
}

/** The same contents can be staged again, whatever an attempt before has left of them. */
async function checkGoesOn(t: Test, store: DatabaseStore, when: string): Promise<void> {
  for (const bytes of [UNNAMED, NAMED]) {
    const { stage, staged } = await stageOf(store, [bytes])
    const read = await store.readBlob(staged.blob, 0, bytes.length)
    t.ok(read !== null && bytes.equals(read), `${when}: staged again`)
    await stage.release()
  }
}

/** An error in the place of every operation while contents are staged. */
export const stagingFaultCases: StorageCases = {
  'an error at any one operation of staging leaves whole what was named, and no trace of the rest': (
    t,
    makeEngine,
  ) => stagingFaults(t, makeEngine, false),
  'errors from any operation of staging on, until the disk works again, do the same': (t, makeEngine) =>
    stagingFaults(t, makeEngine, true),
}
