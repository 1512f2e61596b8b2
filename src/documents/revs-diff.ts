/** `_revs_diff` and `_missing_revs`, protocol.md 4.3. */
import { CouchError } from '../core/errors.ts'
import { BatchSize, Yielder } from '../core/event-loop.ts'
import { isLocalId } from '../core/ids.ts'
import { quoted } from '../core/json.ts'
import { checkSoughtId } from '../core/partitions.ts'
import type { UserCtx } from '../core/types.ts'
import { type Branch, leafRev } from '../revisions/branch.ts'
import { type MissingRevs, MissingSearch, type MissingStep, missingRevs } from '../revisions/missing.ts'
import { parseRev, type Rev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'
import { soughtRevisions } from '../storage/read-set.ts'
import type { Body, DocumentReader } from './database.ts'
import type { Schema } from './json-parser.ts'
import { unlessDamaged } from './render.ts'
import { bodyObject } from './request-body.ts'
import { requireMember } from './security.ts'

/** Documents per call of the store. */
const STEP = 100
/** Revisions per call of the store, except those of its first document. */
const STEP_REVS = 1000
/** Bodies are not read: `chars` is there so that the time also ends a call ({@link Paging.chars}). */
const STEP_CHARS = 1024
/** Maximum number of revisions of one document. A replicator asks only for leaves. */
const MAX_REVS = 10_000
/** Maximum number of characters in an answer. Possible ancestors can make it longer than the request. */
const MAX_ANSWER = 32 * 1024 * 1024
/** Characters of an answer that are encoded at once. */
const ENCODED = 64 * 1024
/** If a document has more revisions than this, they are looked up in several turns. */
const FEW_REVS = 100

const REVS: Schema = {
  check: (revs) => {
    if (!Array.isArray(revs)) throw new CouchError('invalid_revs_list')
  },
  maxCount: MAX_REVS,
  elements: { check: (rev) => void parseRev(rev) },
}

/** Calls `take` for each document with missing revisions. */
async function findMissing(
  store: DocumentReader,
  user: UserCtx,
  body: Body,
  take: (id: string, found: MissingRevs) => void,
): Promise<void> {
  requireMember(user, (await store.view()).security)
  const requested = (await bodyObject(body, { others: REVS })) as Record<string, readonly string[]>
  const ids = Object.keys(requested)
  if (store.partitioned) for (const id of ids) checkSoughtId(id)
  const yielder = new Yielder()
  const stride = new BatchSize(STEP, STEP)
  for (let at = 0; at < ids.length; ) {
    if (yielder.isDue) await yielder.yieldIfDue()
    const since = performance.now()
    const step = nextStep(ids, at, requested, stride.size)
    const answers = await store.readDocs(
      step,
      (doc, id, view) => {
        requireMember(user, view.security)
        return missingOf(hasRevisions(id) ? doc : null, requested[id] as readonly string[])
      },
      { branches: true, of: (place) => soughtRevisions(fewOf(requested[step[place] as string])) },
      STEP_CHARS,
    )
    at += answers.length
    for (const [index, found] of answers.entries()) {
      const id = step[index] as string
      const revs = requested[id] as readonly string[]
      const answer = found ?? (await missingInSteps(store, user, id, revs, yielder))
      if (answer.missing.length > 0) take(id, answer)
    }
    stride.adapt(since)
  }
}

function nextStep(
  ids: readonly string[],
  start: number,
  requested: Readonly<Record<string, readonly string[]>>,
  maxIds: number,
): string[] {
  let end = start
  for (let revs = 0; end < ids.length && end < start + maxIds && revs < STEP_REVS; end++) {
    revs += requested[ids[end] as string]?.length ?? 0
  }
  return ids.slice(start, end)
}

/** `_local` documents have no revisions to replicate, and engines store only UTF-8 ids. */
function hasRevisions(id: string): boolean {
  return !isLocalId(id) && id.isWellFormed()
}

const NOTHING: MissingRevs = { missing: [], possibleAncestors: [] }

function fewOf(requested: readonly string[] = []): readonly Rev[] {
  return requested.length > FEW_REVS ? [] : requested.map(parseRev)
}

/** @returns null if {@link missingInSteps} must find the answer */
function missingOf(doc: DocState | null, requested: readonly string[]): MissingRevs | null {
  return unlessDamaged(
    () => {
      const damaged = doc?.damagedLeaves?.size ?? 0
      // Usually a device asks about the winner, for which no branches are needed.
      if (doc !== null && damaged === 0 && requested.every((rev) => rev === doc.rev)) return NOTHING
      if (requested.length > FEW_REVS) return null
      return missingRevs(soundBranches(doc), requested.map(parseRev))
    },
    () => missingRevs(null, requested.map(parseRev)),
  )
}

/** The branches without those whose leaf is damaged: a device that has it sends it again. */
function soundBranches(doc: DocState | null): readonly Branch[] | null {
  if (doc === null) return null
  const { branches, damagedLeaves } = doc
  if (damagedLeaves === undefined || damagedLeaves.size === 0) return branches
  return branches.filter((branch) => !damagedLeaves.has(leafRev(branch)))
}

/** For many revisions, which would hold the thread too long at once. */
async function missingInSteps(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  requested: readonly string[],
  yielder: Yielder,
): Promise<MissingRevs> {
  const search = new MissingSearch(requested.map(parseRev))
  for (;;) {
    await yielder.yieldIfDue()
    const [step] = await store.readDocs(
      [id],
      (doc, _id, view) => {
        requireMember(user, view.security)
        return unlessDamaged(
          () => search.step(hasRevisions(id) ? soundBranches(doc) : null),
          () => search.step(null),
        )
      },
      { branches: true, ...soughtRevisions([search.next]) },
    )
    const answer = search.add(step as MissingStep)
    if (answer !== null) return answer
  }
}

/** Collects the members of a JSON object as bytes. */
class Members {
  readonly #chunks: Uint8Array[] = []
  #text: string
  #comma = ''
  #length = 0

  /** @param start the text before the members */
  constructor(start: string) {
    this.#text = start
  }

  /** @throws too_large */
  add(name: string, json: string): void {
    const member = `${this.#comma}${quoted(name)}:${json}`
    this.#comma = ','
    this.#text += member
    this.#length += member.length
    if (this.#length > MAX_ANSWER) {
      const reason = `the answer would be longer than ${MAX_ANSWER} characters: ask for fewer documents at once`
      throw new CouchError('too_large', reason)
    }
    if (this.#text.length > ENCODED) this.#encode()
  }

  #encode(): void {
    this.#chunks.push(Buffer.from(this.#text))
    this.#text = ''
  }

  end(text: string): Uint8Array {
    this.#text += text
    this.#encode()
    return this.#chunks.length === 1 ? (this.#chunks[0] as Uint8Array) : Buffer.concat(this.#chunks)
  }
}

/** @throws invalid_revs_list, invalid_rev, too_large; as bodyObject */
export async function revsDiff(store: DocumentReader, user: UserCtx, body: Body): Promise<Uint8Array> {
  const answer = new Members('{')
  await findMissing(store, user, body, (id, { missing, possibleAncestors }) => {
    const ancestors =
      possibleAncestors.length > 0 ? `,"possible_ancestors":${JSON.stringify(possibleAncestors)}` : ''
    answer.add(id, `{"missing":${JSON.stringify(missing)}${ancestors}}`)
  })
  return answer.end('}\n')
}

/** @throws as {@link revsDiff} */
export async function missingRevsAnswer(
  store: DocumentReader,
  user: UserCtx,
  body: Body,
): Promise<Uint8Array> {
  const answer = new Members('{"missing_revs":{')
  await findMissing(store, user, body, (id, { missing }) => answer.add(id, JSON.stringify(missing)))
  return answer.end('}}\n')
}
