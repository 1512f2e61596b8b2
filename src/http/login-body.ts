/** Who logs in, as `POST /_session` says it; protocol.md 11.3. Pure. */
import { CouchError } from '../core/errors.ts'
import { isTooDeep } from '../core/json-depth.ts'

export interface Login {
  readonly name: string
  readonly password: string
}

/** @throws bad_request, invalid_json for what is no UTF-8 */
export function loginOfForm(bytes: Uint8Array): Login {
  const form = new URLSearchParams(textOf(bytes))
  return loginOf((name) => form.get(name) ?? undefined)
}

/** @throws invalid_json, too_deep, bad_request */
export function loginOfJson(bytes: Uint8Array): Login {
  const value = parsed(textOf(bytes))
  if (isTooDeep(value)) throw new CouchError('too_deep')
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new CouchError('body_not_object')
  }
  const body = new Map<string, unknown>(Object.entries(value))
  return loginOf((name) => {
    const member = body.get(name)
    if (member === undefined || typeof member === 'string') return member
    throw new CouchError('bad_request', `${name} must be a string`)
  })
}

/** CouchDB's own word is `name`; the clients of Cloudant say `username`. */
function loginOf(read: (name: string) => string | undefined): Login {
  const name = read('name')
  const username = read('username')
  if (name !== undefined && username !== undefined && name !== username) {
    throw new CouchError('bad_request', 'request body contains different usernames')
  }
  const given = name ?? username
  if (given === undefined) throw new CouchError('bad_request', 'request body must contain a username')
  return { name: given, password: read('password') ?? '' }
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new CouchError('invalid_json')
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new CouchError('invalid_json')
  }
}
