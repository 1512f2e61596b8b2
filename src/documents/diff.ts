/** `_revs_diff` and `_missing_revs`, protocol.md 4.3. */
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { type MissingRevs, missingRevs } from '../revisions/missing.ts'
import { parseRev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import type { Body } from './database.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'

/** Documents looked up in one call of the store. */
const STEP = 100

/** What is missing of each document asked about; those with nothing missing are left out. */
async function missing(store: DatabaseStore, user: UserCtx, body: Body): Promise<[string, MissingRevs][]> {
  requireMember(user, (await store.view()).security)
  const asked = bodyObject(body)
  const ids = Object.keys(asked)
  const found: [string, MissingRevs][] = []
  const breath = new Breath()
  for (let at = 0; at < ids.length; at += STEP) {
    if (breath.isDue) await breath.take()
    const step = ids.slice(at, at + STEP)
    const answers = await store.readDocs(
      step,
      (doc, id, view) => {
        requireMember(user, view.security)
        return missingOf(hasRevisions(id) ? doc : null, asked[id])
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

const NOTHING: MissingRevs = { missing: [], possibleAncestors: [] }

function missingOf(doc: DocState | null, asked: unknown): MissingRevs {
  if (!Array.isArray(asked)) throw new CouchError('invalid_revs_list')
  // Most often a device asks about the winner, which needs no look at the branches.
  if (doc !== null && asked.every((rev) => rev === doc.rev)) return NOTHING
  return missingRevs(doc?.branches ?? null, asked.map(parseRev))
}

export async function revsDiff(store: DatabaseStore, user: UserCtx, body: Body): Promise<Uint8Array> {
  const answer: Record<string, object> = Object.create(null)
  for (const [id, { missing: revs, possibleAncestors }] of await missing(store, user, body)) {
    answer[id] =
      possibleAncestors.length > 0
        ? { missing: revs, possible_ancestors: possibleAncestors }
        : { missing: revs }
  }
  return Buffer.from(`${JSON.stringify(answer)}\n`)
}

export async function missingRevsAnswer(
  store: DatabaseStore,
  user: UserCtx,
  body: Body,
): Promise<Uint8Array> {
  const answer: Record<string, readonly string[]> = Object.create(null)
  for (const [id, { missing: revs }] of await missing(store, user, body)) answer[id] = revs
  return Buffer.from(`${JSON.stringify({ missing_revs: answer })}\n`)
}
