import { randomUUID } from 'node:crypto'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import { makeNotes, type Note, pushBodies } from '../seed.ts'
import type { Trial } from '../trial.ts'
import { pushNotes } from './push.ts'

const CONFLICTS = 50

export const firstsync: Trial = {
  name: 'firstsync',
  about: `a new PouchDB in memory pulls notes, ${CONFLICTS} of them with a conflict`,
  async run({ peer, scale, emptyDatabase }) {
    PouchDB.plugin(memoryAdapter)
    const path = await emptyDatabase()
    const notes = makeNotes(scale.pulled)
    await pushNotes(peer, path, notes)
    const [edits] = pushBodies(notes.slice(0, CONFLICTS).map(conflictOf), CONFLICTS)
    await peer.call('POST', `${path}/_bulk_docs`, 201, edits)
    const device = new PouchDB(`bench-${randomUUID()}`, { adapter: 'memory' })
    try {
      const since = performance.now()
      const pulled = await device.replicate.from(`${peer.address}${path}`)
      const seconds = (performance.now() - since) / 1000
      if (pulled.docs_written !== notes.length + CONFLICTS) {
        throw new Error(`${pulled.docs_written} revisions came from ${peer.name}`)
      }
      return [{ name: 'time', unit: 's', value: seconds }]
    } finally {
      await device.destroy()
    }
  },
}

/** The same note after an edit on another device. */
function conflictOf(note: Note): Note {
  const [, ...before] = note._revisions.ids
  const ids = ['f'.repeat(32), ...before]
  const { start } = note._revisions
  return { ...note, _rev: `${start}-${ids[0]}`, _revisions: { start, ids }, title: 'edited elsewhere' }
}
