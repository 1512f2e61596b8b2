/** Runs couchbackup's own programs on a server, and makes a database with every kind of content for them. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createReadStream, createWriteStream } from 'node:fs'
import type { ClientRequest } from 'node:http'
import { join } from 'node:path'
import couchbackup, { type Options } from '@cloudant/couchbackup'
import type { Test } from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'

export const BATCH = 50

/** A server, a folder for backups, and every request that couchbackup makes: `METHOD /path content-encoding`. */
export async function start(t: Test) {
  const folder = await temporaryFolder(t)
  // couchbackup creates a folder for its log in the system's folder for temporary files, and does not remove it.
  const { TMPDIR } = process.env
  process.env.TMPDIR = folder
  t.teardown(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR
    else process.env.TMPDIR = TMPDIR
  })
  const sent: string[] = []
  const note = (message: unknown) => {
    const { request } = message as { request: ClientRequest }
    sent.push(`${request.method} ${request.path} ${String(request.getHeader('content-encoding'))}`)
  }
  subscribe('http.client.request.start', note)
  t.teardown(() => unsubscribe('http.client.request.start', note))
  return { server: await startTestServer(t), file: join(folder, 'notes.backup'), sent }
}

/** Backs up a database to a file. @returns the number of revisions @throws couchbackup's error */
export function backUp(
  server: TestServer,
  database: string,
  file: string,
  options: Options = {},
): Promise<number> {
  return new Promise((resolve, reject) => {
    const target = createWriteStream(file)
    couchbackup.backup(
      `${server.url}/${database}`,
      target,
      { bufferSize: BATCH, ...options },
      (error, result) => {
        target.end(() => (error === null ? resolve(result?.total ?? -1) : reject(error)))
      },
    )
  })
}

/** Restores a file to an existing database. @returns the number of revisions @throws couchbackup's error */
export function restore(
  server: TestServer,
  database: string,
  file: string,
  options: Options = {},
): Promise<number> {
  return new Promise((resolve, reject) => {
    couchbackup.restore(
      createReadStream(file),
      `${server.url}/${database}`,
      { bufferSize: BATCH, ...options },
      (error, result) => (error === null ? resolve(result?.total ?? -1) : reject(error)),
    )
  })
}

const MANY = 220

/** A database with edited documents, conflicts, tombstones, deleted conflicts, design documents and odd ids. */
export async function fill(server: TestServer, database: string): Promise<void> {
  await server.request('PUT', `/${database}`)
  const bulk = (docs: object[], newEdits = true) =>
    server.request('POST', `/${database}/_bulk_docs`, { body: { docs, new_edits: newEdits } })
  const docs = Array.from({ length: MANY }, (_, n) => ({ _id: `note-${n}`, n, text: 'wört '.repeat(n % 40) }))
  let { json } = await bulk(docs)
  for (const text of ['second', 'third']) {
    const edited = (json as { id: string; rev: string }[]).slice(0, 60)
    json = (await bulk(edited.map(({ id, rev }) => ({ _id: id, _rev: rev, text })))).json
  }
  const gone = (json as { id: string; rev: string }[]).slice(0, 20)
  await bulk(gone.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true, why: 'kept' })))
  const [a, b, c] = ['a', 'b', 'c'].map((letter) => letter.repeat(32))
  await bulk(
    [
      { _id: 'split', _revisions: { start: 3, ids: [a, c, b] }, _rev: `3-${a}`, text: 'long' },
      { _id: 'split', _revisions: { start: 2, ids: [a, b] }, _rev: `2-${a}`, text: 'short' },
      { _id: 'split', _revisions: { start: 2, ids: [b, b] }, _rev: `2-${b}`, _deleted: true },
      { _id: 'no common root', _rev: `1-${a}`, text: 'one' },
      { _id: 'no common root', _rev: `1-${b}`, text: 'two' },
      { _id: 'stemmed', _revisions: { start: 9, ids: [a, b] }, _rev: `9-${a}`, text: 'ninth' },
      { _id: 'a/b?c#d %', _rev: `1-${a}`, text: '🍎\u2028\n' },
      { _id: '_design/views', _rev: `1-${a}`, language: 'javascript', views: {} },
    ],
    false,
  )
}
