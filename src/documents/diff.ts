/** `_revs_diff` and `_missing_revs`, protocol.md 4.3. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { type MissingRevs, missingRevs } from '../revisions/missing.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { Body } from './database.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'

/** Documents looked up in one call of the store. */
const STEP = 50

/** What is missing of each document asked about; those with nothing missing are left out. */
async function missing(store: DatabaseStore, user: UserCtx, body: Body): Promise<[string, MissingRevs][]> {
  requireMember(user, (await store.view()).security)
  const asked = readAsked(bodyObject(body))
  const ids = [...asked.keys()]
  const found: [string, MissingRevs][] = []
  const breath = new Breath()
  for (let at = 0; at < ids.length; at += STEP) {
    await breath.take()
    const step = ids.slice(at, at + STEP)
    const answers = await store.readDocs(
      step,
      (doc, id, view) => {
        requireMember(user, view.security)
        return missingRevs(hasRevisions(id) ? (doc?.branches ?? null) : null, asked.get(id) as Rev[])
      },
      { branches: true },
    )
    for (const [index, answer] of answers.entries()) {
      if (answer.missing.length > 0) found.push([step[index] as string, answer])
    }
  }
  return found
}

/** `_local` documents have none that anybody could have, nor has what can be no id: engines store UTF-8. */
function hasRevisions(id: string): boolean {
  return !isLocalId(id) && id.isWellFormed()
}

function readAsked(request: Record<string, unknown>): Map<string, Rev[]> {
  const asked = new Map<string, Rev[]>()
  for (const [id, revs] of Object.entries(request)) {
    if (!Array.isArray(revs)) throw new CouchError('invalid_revs_list')
    asked.set(id, revs.map(parseRev))
  }
  return asked
}

export async function revsDiff(store: DatabaseStore, user: UserCtx, body: Body): Promise<Uint8Array> {
  const rows = (await missing(store, user, body)).map(([id, { missing: revs, possibleAncestors }]) => {
    const value = {
      missing: revs,
      ...(possibleAncestors.length > 0 && { possible_ancestors: possibleAncestors }),
    }
    return `${JSON.stringify(id)}:${JSON.stringify(value)}`
  })
  return Buffer.from(`{${rows.join(',')}}\n`)
}

export async function missingRevsAnswer(
  store: DatabaseStore,
  user: UserCtx,
  body: Body,
): Promise<Uint8Array> {
  const rows = (await missing(store, user, body)).map(
    ([id, { missing: revs }]) => `${JSON.stringify(id)}:${JSON.stringify(revs)}`,
  )
  return Buffer.from(`{"missing_revs":{${rows.join(',')}}}\n`)
}
