/** `settee move` of a listening server by its control socket, and calls of an admin. */
import { reachServer } from '../../src/control/control-socket.ts'
import type { MoveOutcome } from '../../src/move/moves.ts'
import type { TestServer } from '../helpers/server.ts'

export const auth = 'anna:secret'
export const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }

export async function call(server: TestServer, method: string, path: string, body?: unknown) {
  const { status, text, json } = await server.request(method, path, {
    auth,
    ...(body !== undefined && { body }),
  })
  if (status >= 400) throw new Error(`${method} ${path}: ${text}`)
  return json
}

export function addressOf({ url }: { readonly url: string }): string {
  return url.replace('://', `://${auth}@`)
}

export async function move(url: string, here: TestServer, options: object = {}): Promise<MoveOutcome> {
  const controls = await reachServer(here.dataDir)
  if (controls === null) throw new Error('the server is not running')
  return controls.move({
    url,
    databases: null,
    keepsUuid: false,
    isMerged: false,
    ...options,
  })
}
