/** Views and Mango indexes over notes of 1 kB: the build, and the time of each kind of query. */
import { setTimeout as pause } from 'node:timers/promises'
import { inFlight, medianOf, percentileOf } from '../load.ts'
import type { Peer } from '../peer.ts'
import { makeNotes, type Note, newDocument } from '../seed.ts'
import type { Figure, Trial } from '../trial.ts'
import { pushNotes } from './push.ts'

const PER_QUERY = 100
const GROUPS = { few: 8, many: 200 }
/** Documents that are saved before a query. */
const SAVES = 100
/** How long single documents are saved, with and without a build beside them, in ms. */
const SAVING_MS = 1500

/** A note that is tagged, so that views can group it. */
type TaggedNote = Note & { readonly group: number; readonly part: number }

const UPDATED = { map: 'function (doc) { if (doc.title) emit(doc.updatedAt, { title: doc.title }) }' }
const GROUPED = {
  map: 'function (doc) { if (doc.title) emit([doc.group, doc.part], doc.createdAt % 1000) }',
  reduce: '_stats',
}

export const views: Trial = {
  name: 'views',
  about: 'views and a Mango index: builds, and queries by key, range and group, and after saves',
  isAlone: true,
  async run({ peer, scale, emptyDatabase }) {
    const path = await emptyDatabase()
    const notes = makeNotes(scale.filtered).map(
      (note, n): TaggedNote => ({ ...note, group: n % GROUPS.few, part: n % GROUPS.many }),
    )
    await pushNotes(peer, path, notes)
    const figures: Figure[] = []
    const ms = (name: string, value: number) => figures.push({ name, unit: 'ms', value })
    const quiet = await saveTimes(peer, path, notes, pause(SAVING_MS))

    ms('build, one view', await build(peer, path, 'one', { updated: UPDATED }))
    ms('build, two views', await build(peer, path, 'two', { updated: UPDATED, grouped: GROUPED }))
    let besideMs = 0
    const again = build(peer, path, 'again', { updated: UPDATED, grouped: GROUPED, third: GROUPED }).then(
      (took) => {
        besideMs = took
      },
    )
    const beside = await saveTimes(peer, path, notes, again)
    ms('build, three views beside saves', besideMs)
    ms("99 % of saves' times", percentileOf(quiet, 0.99))
    ms('the same beside a build', percentileOf(beside, 0.99))

    const view = (name: string, query: string) =>
      peer.call('GET', `${path}/_design/two/_view/${name}?${query}`, 200)
    const keys = Array.from({ length: 100 }, (_, n) => notes[(n * 7919) % (notes.length - PER_QUERY)] as Note)
    const each = async (name: string, query: (note: Note) => Promise<unknown>) => {
      const times: number[] = []
      for (const note of keys) times.push(await timed(() => query(note)))
      ms(name, medianOf(times))
    }
    await each('one key', ({ updatedAt }) => view('updated', `key=${updatedAt}`))
    await each('100 rows', ({ updatedAt }) => view('updated', `limit=${PER_QUERY}&startkey=${updatedAt}`))
    await each('100 rows with documents', ({ updatedAt }) =>
      view('updated', `limit=${PER_QUERY}&include_docs=true&startkey=${updatedAt}`),
    )
    await view('grouped', 'reduce=true')
    await each(`${GROUPS.few} groups`, () => view('grouped', 'group_level=1'))
    await each(`${GROUPS.many} groups`, () => view('grouped', 'group=true'))

    const save = (note: Note) => peer.call('POST', path, 201, newDocument(note))
    const after = async (saves: number, rounds: number) => {
      const times: number[] = []
      for (let round = 0; round < rounds; round++) {
        await inFlight(
          8,
          notes.slice(0, saves).map((note) => () => save(note)),
        )
        times.push(await timed(() => view('updated', 'limit=1')))
      }
      return medianOf(times)
    }
    ms('after one save', await after(1, 30))
    ms(`after ${SAVES} saves`, await after(SAVES, 5))

    const index = JSON.stringify({ index: { fields: ['updatedAt'] }, name: 'by-time', ddoc: 'by-time' })
    await peer.call('POST', `${path}/_index`, 200, index)
    const find = ({ updatedAt }: Note) =>
      peer.call(
        'POST',
        `${path}/_find`,
        200,
        JSON.stringify({ selector: { updatedAt: { $gte: updatedAt } }, limit: 25, use_index: 'by-time' }),
      )
    ms('build, a Mango index', await timed(() => find(keys[0] as Note)))
    await each('_find of 25', find)
    return figures
  },
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const since = performance.now()
  await work()
  return performance.now() - since
}

/** @returns the time of the first query, in ms */
async function build(peer: Peer, path: string, name: string, definitions: object): Promise<number> {
  await peer.call('PUT', `${path}/_design/${name}`, 201, JSON.stringify({ views: definitions }))
  return timed(() => peer.call('GET', `${path}/_design/${name}/_view/updated?limit=1`, 200))
}

/** Saves documents one after the other until some work has ended. @returns the time of each, in ms */
async function saveTimes(
  peer: Peer,
  path: string,
  notes: readonly Note[],
  until: Promise<unknown>,
): Promise<number[]> {
  const times: number[] = []
  let isOver = false
  const end = until.finally(() => {
    isOver = true
  })
  for (let n = 0; !isOver; n++) {
    const note = notes[n % notes.length] as Note
    times.push(await timed(() => peer.call('POST', path, 201, newDocument(note))))
    await pause(5)
  }
  await end
  return times
}
