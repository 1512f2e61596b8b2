/** A server, and a remote in front of it that fails as a script says. */
import type { Test } from 'tap'
import { sharedTestServer, type TestServer } from '../helpers/server.ts'
import { type Incident, type ScriptedRemote, scriptedRemote } from './scripted-remote.ts'

/** The content of the database `full`. */
export const DOCS = Array.from({ length: 60 }, (_, n) => ({ _id: `n${n}`, text: 'x'.repeat(200) }))

export const DOWN: Incident = { type: 'hang up' }
export const HTML: Incident = {
  type: 'answer',
  status: 200,
  headers: { 'content-type': 'text/html' },
  body: '<html>one moment</html>',
}

export function status(status: number, headers = {}): Incident {
  return { type: 'answer', status, headers }
}

interface Scene {
  /** Has the database `full` with {@link DOCS}, and `empty`. */
  readonly server: TestServer
  readonly remote: ScriptedRemote
}

/** @returns what prepares the scene of a case; the cases share a server */
export function sceneMaker(t: Test): (t: Pick<Test, 'teardown'>) => Promise<Scene> {
  const next = sharedTestServer(t)
  return async (t) => {
    const server = await next()
    const remote = await scriptedRemote(t, server.url)
    await server.request('PUT', '/full')
    await server.request('PUT', '/empty')
    await server.request('POST', '/full/_bulk_docs', { body: { docs: DOCS } })
    return { server, remote }
  }
}

/** Replicates in batches of 25 changes. */
export function replicate(server: TestServer, body: object) {
  return server.request('POST', '/_replicate', { body: { worker_batch_size: 25, ...body } })
}

export async function count(server: TestServer, name: string): Promise<number> {
  return (await server.request('GET', `/${name}`)).json.doc_count as number
}
