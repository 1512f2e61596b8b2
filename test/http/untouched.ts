/** A server with attachments, and whether what it stores is as it was: row by row, and nothing left of a body. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { storedTables } from '../helpers/stored-rows.ts'
import { type Answer, connect } from './client.ts'

/** Above what goes into the document's own write: it is staged. */
export const LARGE = Buffer.alloc(700_000, 'settee')
export const OTHER_LARGE = Buffer.alloc(600_000, 'couch')

export const RELATED = { 'content-type': 'multipart/related;boundary="B"' }

export interface Refusal {
  readonly status: number
  readonly reason?: string
}

export function bad(reason?: string): Refusal {
  return { status: 400, ...(reason !== undefined && { reason }) }
}

/** A server with one document `doc` that has two attachments, `small` and `large`. */
export async function startUntouched(t: Test) {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  const _attachments = { small: { data: 'c21hbGw=' }, large: { data: OTHER_LARGE.toString('base64') } }
  const { rev } = (await call('PUT', '/db/doc', { json: { n: 1, _attachments } })).json as { rev: string }
  const before = storedTables(server.dataDir, 'db')
  const isUntouched = (t: Test, title: string) => {
    t.strictSame(storedTables(server.dataDir, 'db'), before, `${title}: nothing stored`)
    t.strictSame(readdirSync(join(server.dataDir, 'tmp')), [], `${title}: no body left`)
  }
  const refused = (t: Test, title: string, answer: Answer, { status, reason }: Refusal) => {
    t.match(answer, { status, json: { error: String, ...(reason !== undefined && { reason }) } }, title)
    isUntouched(t, title)
  }
  return { ...server, call, rev, refused, isUntouched }
}
