/** What the requests must not be able to change: it is filled before them, and looked at after them. */
import { createHash } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import {
  ADMIN,
  type Facts,
  GUARD_ID,
  GUARDED_VAULT,
  KEPT_ATTACHMENTS,
  KEPT_IDS,
  PACKED_ID,
  VAULTS,
  WILD_DATABASES,
} from './world.ts'

const AUTHORIZATION = `Basic ${Buffer.from(`${ADMIN.name}:${ADMIN.password}`).toString('base64')}`

export interface Called {
  readonly status: number
  readonly text: string
}

/** A request with nothing odd about it, as the admin. */
export async function call(port: number, method: string, path: string, body?: unknown): Promise<Called> {
  const headers = { authorization: AUTHORIZATION, 'content-type': 'application/json' }
  const sent = body === undefined ? {} : { body: JSON.stringify(body) }
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers, ...sent })
  return { status: answer.status, text: await answer.text() }
}

/** Makes the databases, and fills the vaults. @throws when anything is refused */
export async function fillVaults(port: number): Promise<Facts> {
  // That of the accounts is there already.
  for (const name of [...VAULTS, ...WILD_DATABASES.filter((name) => name !== '_users')])
    await succeed(port, 'PUT', `/${encodeURIComponent(name)}`)
  for (const name of VAULTS) {
    await succeed(port, 'POST', `/${name}/_bulk_docs`, { new_edits: false, docs: KEPT_IDS.flatMap(history) })
    await putPacked(port, `/${name}/${PACKED_ID}/note.txt`)
    await succeed(port, 'PUT', `/${name}/${GUARD_ID}`, guard(name))
  }
  const leaves = KEPT_IDS.flatMap((id) => history(id, KEPT_IDS.indexOf(id)))
  const revisions = leaves.map(({ _revisions: { start, ids } }) => `${start}-${ids[0]}`)
  const { text } = await succeed(port, 'GET', `/${VAULTS[0]}/_changes`)
  const { results } = JSON.parse(text) as { results: { seq: string }[] }
  return { revisions, tokens: results.map(({ seq }) => seq) }
}

/** Everything that is to stay, by its address, as text. */
export async function readVaults(port: number): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for (const name of VAULTS) {
    for (const id of [...KEPT_IDS, PACKED_ID, GUARD_ID]) {
      const path = `/${name}/${encodeURIComponent(id)}`
      for (const query of ['?attachments=true', ...leavesOf(id)]) {
        const { status, text } = await call(port, 'GET', path + query)
        found.set(path + query, `${status} ${text}`)
      }
    }
  }
  return found
}

/** The text of a document that was made with the members; all but its revision is known. */
export function keptText(path: string, members: string, found: string): string {
  const rev = /"_rev":"([^"]*)"/.exec(found)?.[1]
  return `{"_id":${JSON.stringify(path.split('/').at(-1))},"_rev":"${rev}",${members}}\n`
}

/** On a busy machine, checking a function may take longer than this server allows. */
const isTimeout = ({ text }: Called) => text.startsWith('{"error":"timeout"')

async function succeed(port: number, method: string, path: string, body?: unknown): Promise<Called> {
  let answer = await call(port, method, path, body)
  for (let tries = 1; tries < 20 && isTimeout(answer); tries++) answer = await call(port, method, path, body)
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
  return answer
}

async function putPacked(port: number, path: string): Promise<void> {
  const headers = { authorization: AUTHORIZATION, 'content-type': 'text/plain', 'content-encoding': 'gzip' }
  const body = gzipSync('packed '.repeat(1000))
  const { status } = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'PUT', headers, body })
  if (status !== 201) throw new Error(`PUT ${path}: ${status}`)
}

/**
 * Three leaves: a winner whose generation no request can reach, since they know no revision to grow from; a conflict,
 * and a deleted one.
 */
function history(id: string, at: number) {
  const hash = (branch: string, generation: number) =>
    createHash('md5').update(`${id} ${branch} ${generation}`).digest('hex')
  const path = (branch: string, start: number) => ({
    start,
    ids: Array.from({ length: start }, (_, back) => hash(start - back > 5 ? branch : 'root', start - back)),
  })
  const data = Buffer.from(`attachment of ${id}`).toString('base64')
  const attachments = Object.fromEntries(
    KEPT_ATTACHMENTS.map((name) => [name, { content_type: 'text/plain', data }]),
  )
  return [
    { _id: id, _revisions: path('winner', 12), at, text: 'kept 😀', _attachments: attachments },
    { _id: id, _revisions: path('conflict', 11), at, conflict: true },
    { _id: id, _revisions: path('deleted', 10), _deleted: true },
  ]
}

function leavesOf(id: string): string[] {
  if (!KEPT_IDS.includes(id)) return []
  return history(id, 0).map(({ _revisions: { start, ids } }) => `?rev=${start}-${ids[0]}`)
}

/** Functions for those who read; in one vault also the one that keeps kept documents from every write. */
function guard(vault: string): object {
  const validate =
    'function (newDoc, oldDoc) { if (/^kept/.test(newDoc._id) && (oldDoc || !newDoc.ledger)) throw({ forbidden: "kept" }) }'
  return {
    filters: {
      plain: 'function (doc, req) { return doc.at % 2 === 0 }',
      heavy: 'function (doc, req) { return JSON.stringify(doc).indexOf(req.query.type || "k") >= 0 }',
      broken: 'function (doc) { throw new Error("thrown by a filter") }',
      lib: "function (doc) { return doc._id.indexOf('kept-1') === -1 }",
    },
    views: {
      plain: { map: 'function (doc) { emit(doc._id, doc.at) }', reduce: '_stats' },
      heavy: {
        map: 'function (doc) { for (var k in doc) emit([k, doc[k]], null) }',
        reduce: 'function (keys, values, rereduce) { return rereduce ? sum(values) : values.length }',
      },
      broken: { map: 'function (doc) { throw new Error("thrown by a map") }' },
    },
    ...(vault === GUARDED_VAULT && { validate_doc_update: validate }),
  }
}
