/**
 * The socket in the data folder by which the command line reaches the server that runs on it. Whoever may open it has
 * the rights of the folder's owner, who could as well stop the server and change its files: so it asks for no password.
 *
 * One connection is one call: a line of JSON there, and back any number of lines that tell how far it is, then one with
 * what came of it.
 */
import { join } from 'node:path'
import type { Controls } from './controls.ts'

/** Of mode 0700, since a socket has the mode that the umask leaves it until somebody changes it. */
export const CONTROL_FOLDER = 'control'

/** Bytes of a path that fit into a socket's address on every system, less the NUL at its end. */
export const MAX_PATH_BYTES = 103
export const MAX_CALL_BYTES = 65_536

export interface ControlCall {
  readonly act: keyof Controls
  readonly argument: object
}

/** `error` is a CouchError's name and reason. */
export type ControlAnswer =
  | { readonly progress: object }
  | { readonly result: unknown }
  | { readonly error: { readonly code: string; readonly reason: string } }

/** @param dataDir absolute */
export function controlPath(dataDir: string): string {
  return join(dataDir, CONTROL_FOLDER, 'settee.sock')
}
