/** Declared differences of revisions and their ancestry. */
import type { Declared } from './declaration.ts'
import { hasReplicated, isEqualBut, isFeed, membersRow, ordered, shown, sorted } from './likeness.ts'

/** The length of what follows the generation of a revision. */
const HASH = 32
const ANCESTRY = /"ids":\[[^\]]*\]|"_revs_info":\[[^\]]*\]/g
const NUMBERS = /"\d+-<token>"|"_local_seq":\d+|"pending":\d+/g
const LOWERED = 'PUT /{db}/_revs_limit'

export const REVISION_ROWS: readonly Declared[] = [
  membersRow('a write that only extends an ancestry', NUMBERS, ({ before }) => hasReplicated(before)),
  {
    row: 'a write that only extends an ancestry',
    is: (what, { step, before, couchdb, settee }) => {
      if (what !== 'body' || !hasReplicated(before) || !isFeed(step.path)) return false
      // The document moves to the end of CouchDB's feed, and maybe to where a device has not read yet.
      const [theirs, ours] = [couchdb.body, settee.body].map((body) => changesIn(body))
      const known = new Set(theirs)
      return (
        ours?.every((row) => known.has(row)) === true &&
        (ours.length === theirs?.length || /since=/.test(step.path))
      )
    },
  },
  {
    // CouchDB's replication finds the document again behind its checkpoint.
    row: 'a write that only extends an ancestry',
    is: (what, { step, before, couchdb, settee }) =>
      what === 'body' &&
      step.path === '/_replicate' &&
      hasReplicated(before) &&
      hasNoChanges(settee.body) &&
      !hasNoChanges(couchdb.body),
  },
  {
    row: 'an ancestor that is replicated after its successor',
    is: (what, { step, couchdb, settee }) =>
      (/rev=|revs_info|meta|open_revs/.test(step.path) && couchdb.status === 200 && settee.status === 404) ||
      (what === 'body' &&
        isEqualBut(couchdb.body, settee.body, /"status":"(available|missing|deleted)"|"_local_seq":\d+/g)),
  },
  {
    row: 'an ancestor that is replicated after its successor',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /open_revs=|_bulk_get/.test(step.path) &&
      couchdb.status === 200 &&
      /"missing"/.test(JSON.stringify(settee.body)) &&
      JSON.stringify(couchdb.body).split('"ok"').length > JSON.stringify(settee.body).split('"ok"').length,
  },
  {
    row: 'an ancestor that is replicated after its successor, in a request with attachments',
    lasts: true,
    is: (what, { step, before, couchdb, settee }) => {
      if (what !== 'body' || !hasReplicated(before) || !before.includes('_attachments')) return false
      if (!/_missing_revs|_revs_diff/.test(step.path))
        return /revs/.test(shown(step)) && isEqualBut(couchdb.body, settee.body, ANCESTRY)
      const unknown = moreMissing(couchdb.body, settee.body)
      return unknown.length > 0 && unknown.every((rev) => before.includes(rev.slice(-HASH)))
    },
  },
  {
    row: 'a replicated revision that leaves a branch as it is, after _revs_limit was lowered',
    is: (what, { step, before, couchdb, settee }) => {
      const lowered = before.indexOf(LOWERED)
      if (lowered === -1 || !hasReplicated(before.slice(lowered))) return false
      if (what !== 'body' && settee.status !== 404) return false
      const known = before.slice(0, before.lastIndexOf(LOWERED))
      const cut = /_missing_revs|_revs_diff/.test(step.path)
        ? moreMissing(couchdb.body, settee.body)
        : /_bulk_get/.test(step.path)
          ? moreNotFound(couchdb.body, settee.body)
          : /open_revs=all/.test(step.path)
            ? moreLeaves(couchdb.body, settee.body)
            : revived(couchdb.body, settee.body)
      return cut.length > 0 && cut.every((rev) => known.includes(rev.slice(-HASH)))
    },
  },
  {
    row: 'a replicated revision that descends from two branches',
    is: (what, { step, before, couchdb, settee }) => {
      if (!/(conflicts|meta)=true/.test(step.path) || settee.status !== 200) return false
      const [theirs, ours] = [conflicts(couchdb.body), conflicts(settee.body)]
      const kept = theirs.filter((each) => !ours.includes(each))
      const isDeclared =
        kept.length > 0 &&
        ours.every((each) => theirs.includes(each)) &&
        kept.every((each) => isCutOff(each, before))
      if (!isDeclared) return false
      return what === 'header etag'
        ? couchdb.headers.etag === undefined
        : what === 'body' && isEqualBut(couchdb.body, settee.body, /"_(deleted_)?conflicts":\[[^\]]*\],/g, '')
    },
  },
  {
    row: 'a revision that is replicated with two different ancestries',
    is: (what, { before, couchdb, settee }) =>
      what === 'body' &&
      hasReplicated(before) &&
      ordered(couchdb.body).length > ordered(settee.body).length &&
      ordered(withoutRepeats(couchdb.body)) === ordered(withoutRepeats(settee.body)),
  },
  {
    row: 'a revision named twice',
    is: (what, { step }) =>
      what === 'body' &&
      /_revs_diff|_missing_revs|open_revs=|_bulk_get/.test(step.path) &&
      // The placeholders of one document may stand for one revision.
      /"(\d+-[0-9a-f]{32})".*"\1"|"\{(rev|old):([^}]+)\}".*"\{(rev|old):\3\}"/.test(
        decodeURIComponent(shown(step)),
      ),
  },
  {
    row: 'the order of the leaves in open_revs=all and _bulk_get, and of missing and possible_ancestors',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /open_revs=|_bulk_get|_missing_revs/.test(step.path) &&
      isEqualBut(sorted(couchdb.body), sorted(settee.body), /^$/g),
  },
  {
    row: 'rev with latest=true',
    is: (_, { step }) => /rev=.*latest=true|latest=true.*rev=/.test(step.path),
  },
  { row: 'open_revs="all" with quotes', is: (_, { step }) => step.path.includes('open_revs=%22all%22') },
]

function hasNoChanges(body: unknown): boolean {
  return (body as { no_changes?: boolean }).no_changes === true
}

/** Its lists, each with what it says several times said once. */
function withoutRepeats(value: unknown): unknown {
  if (Array.isArray(value)) {
    const texts = new Set(value.map((each) => ordered(withoutRepeats(each))))
    return [...texts].map((text) => JSON.parse(text))
  }
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withoutRepeats(each)]))
}

/** @returns the revisions that one answer of `_missing_revs` or `_revs_diff` names and another does not; none: they differ otherwise */
function moreMissing(theirs: unknown, ours: unknown): string[] {
  const [all, some] = [missing(theirs), missing(ours)]
  return some.every((each) => all.includes(each)) ? all.filter((each) => !some.includes(each)) : []
}

/** @returns the revisions that are `missing` in one answer of `_bulk_get` alone; none: they differ otherwise */
function moreNotFound(theirs: unknown, ours: unknown): string[] {
  const [all, some] = [theirs, ours].map((body) => (body as BulkGet).results.flatMap(({ docs }) => docs))
  const differing = (all ?? []).flatMap((each, at) => {
    const other = some?.[at]
    if (isEqualBut(each, other, /^$/g)) return []
    const isMissing = each.error?.reason === 'missing' && other?.ok?._rev === each.error.rev
    return [isMissing ? each.error?.rev : undefined]
  })
  return differing.every((rev) => rev !== undefined) ? (differing as string[]) : []
}

/** @returns the leaves that one answer of `open_revs=all` has and another has not; none: they differ otherwise */
function moreLeaves(theirs: unknown, ours: unknown): string[] {
  if (!Array.isArray(theirs) || !Array.isArray(ours)) return []
  const [all, some] = [theirs, ours].map((leaves: object[]) => leaves.map(ordered)) as [string[], string[]]
  const more = all.filter((leaf) => !some.includes(leaf))
  return some.every((leaf) => all.includes(leaf))
    ? more.map((leaf) => (JSON.parse(leaf) as { ok?: { _rev: string } }).ok?._rev ?? '')
    : []
}

/** @returns the revision of a document that is deleted in the other answer; none: they differ otherwise */
function revived(theirs: unknown, ours: unknown): string[] {
  const { _rev } = theirs as { _rev?: string }
  return _rev !== undefined && (ours as { reason?: string }).reason === 'deleted' ? [_rev] : []
}

/** The rows of a feed, each as a text without its sequence. */
function changesIn(body: unknown): string[] {
  const { results = [] } = body as { results?: readonly object[] }
  return results.map((row) => ordered({ ...row, seq: null }).replace(NUMBERS, ''))
}

interface BulkGet {
  readonly results: readonly {
    readonly docs: readonly {
      readonly ok?: { readonly _rev: string }
      readonly error?: { readonly rev: string; readonly reason: string }
    }[]
  }[]
}

/** The revisions that an answer of `_missing_revs` or `_revs_diff` names, each with its document. */
function missing(body: unknown): string[] {
  const { missing_revs = body } = body as { missing_revs?: unknown }
  return Object.entries(missing_revs as object).flatMap(([id, named]) =>
    (JSON.stringify(named).match(/\d+-[0-9a-f]{32}/g) ?? []).map((rev) => `${id} ${rev}`),
  )
}

interface Conflicts {
  readonly _conflicts?: readonly string[]
  readonly _deleted_conflicts?: readonly string[]
}

function conflicts(body: unknown): string[] {
  const { _conflicts = [], _deleted_conflicts = [] } = body as Conflicts
  return [..._conflicts, ..._deleted_conflicts]
}

/** Whether a request has sent a revision as an ancestor, as far up as a `_revs_limit` that was set or further. */
function isCutOff(rev: string, before: string): boolean {
  const limits = [...before.matchAll(/^PUT \/\{db\}\/_revs_limit .*?(\d+)$/gm)].map(([, limit]) =>
    Number(limit),
  )
  const ancestries = [...before.matchAll(/"ids":(\["[^\]]*\])/g)].map(
    ([, ids]) => JSON.parse(ids as string) as string[],
  )
  return ancestries.some((ids) => ids.indexOf(rev.slice(-HASH)) >= Math.min(...limits))
}
