/** A standby beside its primary: the initial copy, how late changes arrive, and the promotion. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ControlCommands } from '../../src/control/control-commands.ts'
import { reachServer } from '../../src/control/control-socket.ts'
import { type OwnServer, startOn } from '../own-server.ts'
import { makeNotes } from '../seed.ts'
import type { Trial } from '../trial.ts'

const BATCH = 500
/** Small databases beside the notes. */
const OTHERS = 100
const CHANGES = 40

export const standby: Trial = {
  name: 'standby',
  about: 'a settee that follows another: the initial copy, the delay of changes, and the promotion',
  isAlone: true,
  async run({ scale }) {
    const [primaryFolder, folder] = [await newFolder(), await newFolder()]
    const primary = await startOn(primaryFolder)
    const second = await startOn(folder)
    try {
      await fill(primary, scale.notes)
      const controls = await reachServer(folder)
      if (controls === null) throw new Error('settee has no control socket')
      const since = performance.now()
      await controls.follow({ url: `${primary.peer.address}/`, again: false })
      await untilCurrent(controls)
      const seconds = (performance.now() - since) / 1000
      const delays = await delaysOf(primary, second)
      const promoted = performance.now()
      await controls.promote({})
      return [
        { name: 'first copy', unit: 'doc/s', value: scale.notes / seconds },
        { name: 'delay, median', unit: 'ms', value: delays[CHANGES >> 1] ?? Number.NaN },
        { name: 'delay, longest', unit: 'ms', value: delays.at(-1) ?? Number.NaN },
        { name: 'promotion', unit: 'ms', value: performance.now() - promoted },
      ]
    } finally {
      await Promise.all([primary.end('SIGTERM'), second.end('SIGTERM')])
      for (const each of [primaryFolder, folder]) await rm(each, { recursive: true, force: true })
    }
  },
}

function newFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'settee-bench-'))
}

async function fill({ peer }: OwnServer, count: number): Promise<void> {
  await peer.call('PUT', '/notes', 201)
  const notes = makeNotes(count)
  for (let at = 0; at < count; at += BATCH) {
    const body = JSON.stringify({ new_edits: false, docs: notes.slice(at, at + BATCH) })
    await peer.call('POST', '/notes/_bulk_docs', 201, body)
  }
  for (let n = 0; n < OTHERS; n++) {
    await peer.call('PUT', `/other-${n}`, 201)
    await peer.call('PUT', `/other-${n}/doc`, 201, '{}')
  }
}

async function untilCurrent(controls: ControlCommands): Promise<void> {
  for (;;) {
    const { lagSeconds, waiting, refused } = await controls.readStandby({})
    if (refused > 0) throw new Error('the standby could not store a revision')
    if (lagSeconds !== null && waiting === 0) return
    await sleep(20)
  }
}

/** @returns ms from an acknowledged write at the primary until the standby answers it, in order */
async function delaysOf(primary: OwnServer, second: OwnServer): Promise<number[]> {
  const delays: number[] = []
  for (let n = 0; n < CHANGES; n++) {
    await primary.peer.call('PUT', `/notes/change-${n}`, 201, '{}')
    const since = performance.now()
    while ((await fetchStatus(`${second.peer.address}/notes/change-${n}`)) !== 200) await sleep(10)
    delays.push(performance.now() - since)
  }
  return delays.sort((a, b) => a - b)
}

async function fetchStatus(address: string): Promise<number> {
  const { username, password, origin, pathname } = new URL(address)
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
  const answer = await fetch(origin + pathname, { headers: { authorization } })
  await answer.text()
  return answer.status
}
