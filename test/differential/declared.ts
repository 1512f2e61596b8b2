/** The differences that docs/compatibility.md declares: each by a text of its row, and how it is known. */
import type { Comparable } from './comparable.ts'
import type { Difference } from './pair.ts'

export interface Declared {
  /** What the row in docs/compatibility.md begins with, without its backticks. */
  readonly row: string
  /** @param what the part that differs: `status`, `body`, or `header` and a name */
  is(what: string, difference: Difference): boolean
}

const REQUESTS: readonly Declared[] = [
  { row: 'a parameter given twice', is: (_, { step }) => isTwice(step.path) },
  {
    row: 'feeds',
    is: (what, { step, couchdb, settee }) =>
      what === 'header cache-control' &&
      isFeed(step.path) &&
      settee.headers['cache-control'] === `${couchdb.headers['cache-control']}, no-transform`,
  },
  {
    row: '500',
    is: (what, { couchdb, settee }) => what === 'body' && couchdb.status === 500 && settee.status === 500,
  },
  {
    row: '_changes with a filter function or _view',
    is: (what, { step }) => what === 'header etag' && isFeed(step.path) && /filter=/.test(step.path),
  },
  {
    row: 'the ETag of _changes',
    is: (_, { step, couchdb }) => couchdb.status === 304 && isFeed(step.path),
  },
  {
    row: 'r and w: more copies',
    is: (what, { couchdb, settee }) =>
      what === 'status' && couchdb.status === 202 && [200, 201].includes(settee.status),
  },
]

const HISTORIES: readonly Declared[] = [
  {
    row: '_purge of revisions that are not stored',
    is: (what, { step, before, couchdb, settee }) =>
      what === 'body' &&
      (/_purged_infos$/.test(step.path) ||
        (/_purge\b/.test(before + step.path) && isEqualBut(couchdb.body, settee.body, /"\d+-<token>"/g))),
  },
  {
    row: 'a _rev for a document that never existed',
    is: (_, { couchdb, settee, step }) => {
      const isRefused = settee.status === 409 || /"error":"conflict"/.test(JSON.stringify(settee.body))
      return (
        couchdb.status === 201 && isRefused && /_?rev\b/.test(shown(step) + (step.headers?.Destination ?? ''))
      )
    },
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
    row: '_security and the limits of a database',
    is: (what, { before, couchdb, settee }) =>
      what === 'body' &&
      /PUT \/\{db\}\/_(security|revs_limit|purged_infos_limit)/.test(before) &&
      isEqualBut(couchdb.body, settee.body, /"\d+-<token>"/g),
  },
  {
    row: 'update_seq of a view',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /_view\/.*update_seq/.test(shown(step)) &&
      isEqualBut(couchdb.body, settee.body, /"update_seq":"\d+-<token>"/g),
  },
  {
    row: 'pending of _changes with filter=_design or _doc_ids',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /filter=_(design|doc_ids)/.test(step.path) &&
      isEqualBut(couchdb.body, settee.body, /"pending":\d+/g),
  },
  {
    row: 'counts after a purge',
    is: (what, { before, couchdb, settee }) =>
      what === 'body' &&
      before.includes('/_purge') &&
      isEqualBut(couchdb.body, settee.body, /"(doc_count|doc_del_count|total_rows|offset)":\d+/g),
  },
  {
    row: 'a write that only extends an ancestry',
    is: (what, { step, before, couchdb, settee }) => {
      if (what !== 'body' || !hasReplicated(before)) return false
      const numbers = /"\d+-<token>"|"_local_seq":\d+|"pending":\d+/g
      if (!isFeed(step.path)) return isEqualBut(couchdb.body, settee.body, numbers)
      // The document moves to the end of CouchDB's feed.
      return isEqualBut(sorted(couchdb.body, numbers), sorted(settee.body, numbers), numbers)
    },
  },
  {
    row: 'the order of the leaves in open_revs=all and _bulk_get, and of missing and possible_ancestors',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /open_revs=|_bulk_get|_missing_revs/.test(step.path) &&
      isEqualBut(sorted(couchdb.body), sorted(settee.body), /^$/g),
  },
  {
    row: 'a revision named twice',
    is: (what, { step }) =>
      what === 'body' &&
      /_revs_diff|_missing_revs|open_revs=|_bulk_get/.test(step.path) &&
      /"(\d+-[0-9a-f]{32})".*"\1"/.test(decodeURIComponent(shown(step))),
  },
  {
    row: 'a revision that is replicated again after _revs_limit was lowered',
    is: (what, { step, before, couchdb, settee }) =>
      what === 'body' &&
      /_missing_revs|_revs_diff/.test(step.path) &&
      before.includes('/_revs_limit') &&
      hasReplicated(before) &&
      quoted(settee.body).every((each) => quoted(couchdb.body).includes(each)),
  },
  {
    row: 'a replicated revision whose ancestry is longer than _revs_limit',
    is: (what, { step, before, couchdb, settee }) =>
      /conflicts=true|meta=true/.test(step.path) &&
      before.includes('/_revs_limit') &&
      hasReplicated(before) &&
      (what === 'header etag'
        ? couchdb.headers.etag === undefined
        : what === 'body' &&
          isEqualBut(couchdb.body, settee.body, /"_(deleted_)?conflicts":\[[^\]]*\],/g, '')),
  },
  {
    row: 'batch=ok together with new_edits=false',
    is: (what, { before, couchdb, settee }) =>
      what === 'body' &&
      /PUT \S*(batch=ok\S*new_edits=false|new_edits=false\S*batch=ok)/.test(before) &&
      quoted(couchdb.body).length < quoted(settee.body).length,
  },
  {
    row: 'rev with latest=true',
    is: (_, { step }) => /rev=.*latest=true|latest=true.*rev=/.test(step.path),
  },
  {
    row: 'POST /{db}?batch=ok of a conflict',
    is: (_, { step, couchdb, settee }) =>
      step.path.includes('batch=ok') && couchdb.status === 202 && settee.status === 409,
  },
  {
    row: 'rows of 417',
    is: (_, { settee }) => settee.status === 417,
  },
  {
    row: 'a Destination that is not percent-encoded',
    is: (_, { step, settee }) =>
      step.method === 'COPY' &&
      (errorOf(settee).reason === 'invalid_url_encoding' || /[^ -~]/.test(step.headers?.Destination ?? '')),
  },
  { row: 'open_revs="all" with quotes', is: (_, { step }) => step.path.includes('open_revs=%22all%22') },
  {
    row: 'a _local document with a revision that is not 0-N',
    is: (_, { step, settee }) =>
      /_local/.test(shown(step) + (step.headers?.Destination ?? '')) &&
      errorOf(settee).reason === 'Invalid rev format',
  },
  {
    row: 'new_edits=false with a _local document',
    is: (_, { step, couchdb }) =>
      /\/_local\/.*new_edits=/.test(step.path) ||
      (/_bulk_docs.*"_local\//.test(shown(step)) && /`new_edits: false`/.test(errorOf(couchdb).reason ?? '')),
  },
]

const ATTACHMENTS: readonly Declared[] = [
  {
    row: 'Range: bytes=-N with N above the length',
    is: (_, { step, couchdb, settee }) =>
      /^bytes=-\d+$/.test(step.headers?.Range ?? '') && couchdb.status === 206 && settee.status === 200,
  },
  {
    row: 'Range of an attachment that is stored gzipped',
    is: (_, { step, couchdb, settee }) =>
      step.headers?.Range !== undefined && couchdb.status === 416 && settee.status === 200,
  },
  {
    row: 'multipart answers, 304, and those of functions',
    is: (what, { step, couchdb }) =>
      what === 'header cache-control' &&
      (couchdb.status === 304 ||
        isMultipart(couchdb) ||
        isOfFunction(step.path) ||
        /multipart/.test(step.headers?.Accept ?? '')),
  },
  {
    row: 'open_revs and attachments=true with Accept: */*',
    is: (_, { couchdb, settee, step }) =>
      isMultipart(couchdb) && !isMultipart(settee) && !/multipart/.test(step.headers?.Accept ?? ''),
  },
  {
    row: 'PUT of an attachment',
    is: (what, { step }) =>
      what === 'header etag' && step.method === 'PUT' && /^\/\{db\}\/[^/]+\/./.test(step.path),
  },
  {
    row: 'the answers 405 and 416',
    is: (what, { couchdb, settee }) =>
      what.startsWith('header ') && [405, 416].includes(couchdb.status) && couchdb.status === settee.status,
  },
  {
    row: 'a digest that does not match',
    is: (_, { settee }) => errorOf(settee).reason === 'md5_mismatch',
  },
  {
    row: 'names of new attachments',
    is: (_, { settee }) => /Attachment name must not contain/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'an attachment that is no object',
    is: (_, { settee }) => /^Invalid attachment data/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'length of an attachment that was sent gzipped',
    is: (what, { couchdb, settee }) =>
      errorOf(settee).reason === 'Request body is not properly gzipped.' ||
      (what === 'body' && isEqualBut(couchdb.body, settee.body, /"length":\d+/g)),
  },
  {
    row: 'an empty Content-Type of an attachment',
    is: (what, { couchdb, settee }) =>
      (what === 'body' &&
        isEqualBut(couchdb.body, settee.body, /"content_type":"(application\/octet-stream)?"/g)) ||
      (what === 'header content-type' &&
        couchdb.headers['content-type'] === '' &&
        settee.headers['content-type'] === 'application/octet-stream'),
  },
  {
    row: 'an attachment with revpos 0',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      shown(step).includes('atts_since') &&
      ordered(couchdb.body).includes('"revpos":0,"stub":true') &&
      isEqualBut(couchdb.body, settee.body, /"data":"[^"]*",|"length":\d+,|,"stub":true/g, ''),
  },
  {
    row: 'a part of multipart/related that is longer',
    is: (_, { settee }) => /^attachment (longer|shorter) than expected$/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'a multipart body without its boundary',
    is: (what, { settee }) => what === 'body' && /boundary/.test(errorOf(settee).reason ?? ''),
  },
]

const SAME_ERROR = /^(invalid_|bad_arg|missing_|error_|query_parse_error)/
/** That of a selector in `_changes` and `_replicate`. */
const SELECTOR_ERROR = /^(Bad argument for|Invalid) operator|^Invalid selector/

/** Whether two errors differ in the value that they show alone. */
function isSameBut(a: Failure, b: Failure): boolean {
  const before = ({ reason = '' }: Failure) => reason.split(/:|<<|"|\{| (?:is not|-?\d)/)[0]
  const isKnown = SAME_ERROR.test(a.error ?? '') || SELECTOR_ERROR.test(a.reason ?? '')
  const isShown = isKnown && a.error === b.error
  return (
    isShown &&
    (before(a) === before(b) || a.error === 'invalid_bulk_docs' || /^(<<|\{|\[|-?\d|")/.test(a.reason ?? ''))
  )
}

const QUERIES: readonly Declared[] = [
  {
    row: 'bookmarks |',
    is: (_, { couchdb, settee }) =>
      [couchdb, settee].some((answer) => errorOf(answer).error === 'invalid_bookmark'),
  },
  {
    row: 'values in errors of _find, _index, lists and views',
    is: (what, { couchdb, settee }) => what === 'body' && isSameBut(errorOf(couchdb), errorOf(settee)),
  },
  {
    row: 'the operator that the error of a negated condition names',
    is: (what, { step, couchdb, settee }) => {
      const failure = errorOf(settee)
      if (what !== 'body' || !shown(step).includes('"$not"') || failure.reason === undefined) return false
      const reason = failure.reason.replace('operator $nin', 'operator $in')
      return isSameBut(errorOf(couchdb), { ...failure, reason })
    },
  },
  {
    row: 'total_keys_examined of _find',
    is: (what, { couchdb, settee }) =>
      what === 'body' && isEqualBut(couchdb.body, settee.body, /"total_(keys|docs)_examined":\d+/g),
  },
  {
    row: 'key beside another end of a range in a partition',
    is: (what, { step }) =>
      what === 'body' && step.path.includes('/_partition/') && /\bkey=.*(start|end)_?key=/.test(step.path),
  },
  {
    row: 'keys of one key beside an end of a range in a partition',
    is: (_, { step, couchdb, settee }) =>
      /\/_partition\/.*keys=/.test(step.path) &&
      couchdb.status === 200 &&
      /^`keys` is incompatible/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'offset of _design_docs',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.path.includes('/_design_docs') &&
      isEqualBut(couchdb.body, settee.body, /"offset":\d+/g),
  },
  {
    row: 'sorted=false of a view in a database of one shard',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /sorted"?[=:]false/.test(shown(step)) &&
      isEqualBut(couchdb.body, settee.body, /,?"(total_rows|offset)":(\d+|null),?/g, ''),
  },
  {
    row: 'sorted=false of a view in a database of one shard',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /sorted"?[=:]false/.test(shown(step)) &&
      /update_seq"?[=:]true/.test(shown(step)) &&
      isEqualBut(
        couchdb.body,
        settee.body,
        /,?"(total_rows|offset|update_seq)":(\d+|null|"\d+-<token>"),?/g,
        '',
      ),
  },
  {
    row: 'skip beside sorted=false of a view',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /_view\//.test(step.path) &&
      /sorted"?[=:]false/.test(shown(step)) &&
      /skip"?[=:][1-9]/.test(shown(step)) &&
      [couchdb, settee].every(({ status }) => status === 200) &&
      quoted(settee.body).length < quoted(couchdb.body).length,
  },
  {
    row: 'offset of a view whose keys have no rows',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      shown(step).includes('keys') &&
      isEqualBut(couchdb.body, settee.body, /"offset":\d+/g),
  },
  {
    row: 'update_seq of _local_docs',
    is: (what, { step }) =>
      what === 'body' && /_local_docs/.test(step.path) && /update_seq/.test(shown(step)),
  },
  {
    row: 'the mrargs of _explain',
    is: (what, { couchdb, settee }) =>
      what === 'body' &&
      isEqualBut(couchdb.body, settee.body, /"(start|end)_key":(null|\[[^\]]*\]|\{\}|\d+|true|"[^"]*")/g),
  },
  {
    row: 'an empty answer of _find to a selector that nothing can match',
    is: (what, { step, couchdb }) =>
      what === 'body' && step.path.endsWith('/_find') && JSON.stringify(couchdb.body) === '{"docs":[]}',
  },
]

const FUNCTIONS: readonly Declared[] = [
  {
    row: 'Content-Security-Policy',
    is: (what, { couchdb, settee }) =>
      what === 'header content-security-policy' &&
      couchdb.headers['content-security-policy'] === undefined &&
      settee.headers['content-security-policy'] === 'sandbox',
  },
  {
    row: '/{db}/_design/{doc}/_show',
    is: (_, { step, settee }) =>
      errorOf(settee).error === 'external_response_error' ||
      (/_show\/start/.test(step.path) && settee.status === 500) ||
      (step.method === 'PATCH' && settee.status === 405),
  },
  {
    row: 'an empty answer of a function',
    is: (what, { step, couchdb }) =>
      what.startsWith('header ') && couchdb.body === '' && isOfFunction(step.path),
  },
  {
    row: 'an error of JavaScript in a validate function',
    is: (what, { couchdb, settee }) =>
      what === 'body' &&
      isEqualBut(
        couchdb.body,
        settee.body,
        /"error":"(\w+Error|unknown_error)",("id":"\w+",)?"reason":"[^"]*"/g,
      ),
  },
  {
    row: 'req.requested_path',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /_show\/request/.test(step.path) &&
      isEqualBut(withoutThird(couchdb.body), withoutThird(settee.body), /^$/g),
  },
  {
    row: 'background building of views',
    is: (what, { step }) =>
      what === 'body' && /"?(stale|update)"?[=:]/.test(shown(step)) && /_view\/|_list\//.test(step.path),
  },
  {
    row: 'background building of views',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.path.endsWith('/_info') &&
      isEqualBut(
        couchdb.body,
        settee.body,
        /"(update_seq|purge_seq|updater_running)":("?[^",}]*"?)|"updates_pending":\{[^}]*\}/g,
      ),
  },
]

const FEEDS: readonly Declared[] = [
  {
    row: 'since as a bare number',
    is: (_, { step, couchdb, settee }) =>
      /since=(%22|\d+(-x)?(&|$))/.test(step.path) && couchdb.status === 400 && settee.status === 200,
  },
  {
    row: 'last_seq and pending of _changes with a filter and a limit',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /filter=/.test(step.path) &&
      /limit=\d/.test(step.path) &&
      isEqualBut(couchdb.body, settee.body, /"last_seq":"\d+-<token>"|"pending":\d+/g),
  },
  {
    row: 'an unknown style',
    is: (_, { step, settee }) =>
      /style=(x|&|$)/.test(step.path) && /`style` values/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'limit=-1 and timeout=-1 of _changes',
    is: (_, { step, settee }) =>
      isFeed(step.path) && /(limit|timeout)=-/.test(step.path) && settee.status === 400,
  },
  {
    row: 'use_checkpoints=false of _replicate',
    is: (what, { step }) => what === 'body' && shown(step).includes('use_checkpoints'),
  },
  {
    row: 'checkpoints of a replication',
    is: (what, { step }) => what === 'body' && step.path.endsWith('/_local_docs'),
  },
  { row: '_active_tasks |', is: (what, { step }) => what === 'body' && step.path === '/_active_tasks' },
  {
    row: 'revpos in a document that is made again',
    is: (what, { couchdb, settee }) =>
      what === 'body' && isEqualBut(couchdb.body, settee.body, /"revpos":\d+/g),
  },
  {
    row: 'POST of a view without a body',
    is: (_, { step, couchdb }) => couchdb.status === 400 && /_view\//.test(step.path) && step.body === '',
  },
]

const ADDRESSES: readonly Declared[] = [
  {
    row: 'a method that no call has',
    is: (_, { step, settee }) => settee.status === 405 && !USUAL.has(step.method),
  },
  {
    row: 'a path below a call that ends there',
    is: (_, { step }) =>
      /\/_(?!design|local)\w+(\/v)?\/x($|\?)|_scheduler\/\w+\/[^/]+\/[^/]+\/x$|_design\/d\/_(none|view\/?($|\?))|\/_design\/\w+\/_view\/($|\?|\/)/.test(
        step.path,
      ),
  },
  {
    row: 'a POST to a /{db}/_x that does not exist',
    is: (_, { step, settee }) =>
      step.method === 'POST' && settee.status === 404 && /\/_\w+(\?|$)/.test(step.path),
  },
  {
    row: '/{db}/_design%2Fx',
    is: (_, { step, couchdb }) => couchdb.status === 301 && /_design%2F/.test(step.path),
  },
  {
    row: 'a filtered replication that finds no document',
    is: (what, { step, couchdb }) =>
      what === 'body' &&
      step.path === '/_replicate' &&
      /"(selector|filter|doc_ids)"/.test(shown(step)) &&
      /"no_changes":true/.test(JSON.stringify(couchdb.body)),
  },
  {
    row: 'an id that cannot exist',
    is: (_, { step, couchdb, settee }) =>
      couchdb.status === 404 &&
      (errorOf(settee).error === 'illegal_docid' ||
        (step.method === 'DELETE' && errorOf(settee).error === 'illegal_partition')),
  },
  {
    row: '_auto_purge, _time_seq, _shards, _sync_shards',
    is: (_, { step }) => /\/_(shards|search|auto_purge)/.test(step.path),
  },
  { row: 'POST /{db}/_temp_view', is: (_, { step }) => step.path.includes('/_temp_view') },
  {
    row: '_node/x/_versions',
    is: (_, { step }) => /favicon|_scheduler(\/none|\/jobs\/none\/x|$)/.test(step.path),
  },
  {
    row: 'a replication that brings a validate function',
    is: (what, { step, before, couchdb, settee }) =>
      what === 'body' &&
      step.path === '/_replicate' &&
      before.includes('validate_doc_update') &&
      isEqualBut(
        couchdb.body,
        settee.body,
        /"(docs_written|doc_write_failures|bulk_get_docs|bulk_get_attempts)":\d+/g,
      ),
  },
  {
    row: 'bulk_get_docs',
    is: (what, { couchdb, settee }) =>
      what === 'body' && isEqualBut(couchdb.body, settee.body, /"bulk_get_\w+":\d+/g),
  },
  {
    row: 'errors of _replicate',
    is: (what, { step, couchdb, settee }) =>
      step.path.startsWith('/_replicate') &&
      (what === 'body' ? [couchdb, settee].every(({ status }) => status >= 400) : isRefusal(settee)),
  },
  {
    row: 'errors of _replicate',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.path.startsWith('/{repl}/') &&
      [couchdb, settee].every(({ status }) => status === 403),
  },
  {
    row: 'POST /_replicate |',
    is: (_, { step, couchdb, settee }) =>
      step.path === '/_replicate' &&
      /"cancel":true/.test(shown(step)) &&
      /"continuous":true/.test(shown(step)) &&
      couchdb.status === 404 &&
      settee.status === 200,
  },
]

const SERVER: readonly Declared[] = [
  { row: 'GET /_up |', is: (_, { step, settee }) => step.path.startsWith('/_up') && settee.status === 200 },
  {
    row: 'PUT, GET, HEAD, DELETE, POST /{db} |',
    is: (_, { step }) => step.method === 'PUT' && /[?&](placement|engine)=/.test(step.path),
  },
  {
    row: 'GET / |',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /^\/(\?|$)/.test(step.path) &&
      isEqualBut(couchdb.body, settee.body, /"git_sha":"<string>",/g, ''),
  },
  {
    row: 'GET /_dbs_info |',
    is: (what, { step }) => what === 'header etag' && step.path.startsWith('/_dbs_info'),
  },
  { row: 'a _node/{node}/x', is: (what, { step }) => what === 'body' && step.path === '/_node/_local/none' },
  {
    row: 'SameSite of the session cookie',
    is: (what, { couchdb, settee }) =>
      what === 'header set-cookie' &&
      cookie(couchdb) === cookie(settee).replace('; SameSite=Lax', '').replace('Max-Age=0', 'Max-Age=600'),
  },
  {
    row: 'a security object without members',
    is: (_, { couchdb, settee }) =>
      (couchdb.status < 400 ||
        /You are not a (db or server|server or db) admin/.test(errorOf(couchdb).reason ?? '')) &&
      /You are not (allowed|authorized) to access this db/.test(errorOf(settee).reason ?? ''),
  },
  { row: '_db_updates |', is: (_, { step }) => step.path.startsWith('/_db_updates') },
  {
    row: 'GET, POST /_cluster_setup',
    is: (what, { step }) => what === 'body' && step.path === '/_cluster_setup',
  },
  {
    row: 'an empty value of the configuration',
    is: (_, { step, settee }) => /_config\//.test(step.path) && settee.body === '',
  },
]

function cookie({ headers }: Comparable): string {
  return headers['set-cookie'] ?? ''
}

/** Those that say least come last, so that a row of its own explains what it can. */
const GENERAL: readonly Declared[] = [
  {
    row: 'a request that makes CouchDB fail',
    is: (_, { couchdb, settee }) =>
      ([0, 500].includes(couchdb.status) || isCut(couchdb)) && settee.status > 0 && settee.status < 500,
  },
  {
    row: 'a request with several mistakes',
    is: (what, { step, couchdb, settee }) =>
      ['body', 'status', 'header allow'].includes(what) &&
      [couchdb, settee].every(isRefusal) &&
      errorOf(couchdb).reason !== errorOf(settee).reason &&
      ([couchdb, settee].some(isEarly) || haveOtherMembers(step.path, couchdb, settee)),
  },
]

/** Methods that some call has. */
const USUAL = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'COPY'])

export const DECLARED: readonly Declared[] = [
  ...REQUESTS,
  ...HISTORIES,
  ...ATTACHMENTS,
  ...QUERIES,
  ...FUNCTIONS,
  ...FEEDS,
  ...ADDRESSES,
  ...SERVER,
  ...GENERAL,
]

/** @returns the row that declares a part of a difference */
export function declaredRow(what: string, difference: Difference): string | undefined {
  return DECLARED.find((each) => each.is(what, difference))?.row
}

function isFeed(path: string): boolean {
  return path.includes('/_changes')
}

function isOfFunction(path: string): boolean {
  return /\/_(show|list|update|rewrite)(\/|$)/.test(path)
}

function isMultipart({ headers }: Comparable): boolean {
  return headers['content-type']?.startsWith('multipart/') === true
}

function isRefusal({ status }: Comparable): boolean {
  return status >= 400 && status < 500
}

function isCut({ body }: Comparable): boolean {
  return typeof body === 'object' && body !== null && 'cut' in body
}

/** What one of them may look at before the other mistake. */
function isEarly(answer: Comparable): boolean {
  const { error = '', reason } = errorOf(answer)
  return (
    ['conflict', 'illegal_docid', 'method_not_allowed'].includes(error) ||
    /Invalid rev format|different values|`new_edits`|`doc_ids`|invalid UTF-8 JSON|Multi-key|incompatible|invalid_seq_interval|missing_named_view|Invalid path|Destination header is mandatory|`feed` types/.test(
      reason ?? '',
    )
  )
}

/** Whether a write may have extended an ancestry. */
function hasReplicated(before: string): boolean {
  return /"?new_edits"?[=:]false|\/_replicate/.test(before)
}

/** Whether each names another member of a body of Mango as the wrong one. */
function haveOtherMembers(path: string, couchdb: Comparable, settee: Comparable): boolean {
  return /_(find|explain|index)$/.test(path) && errorOf(couchdb).error !== errorOf(settee).error
}

/** What a `request` function shows, without `requested_path`. */
function withoutThird(body: unknown): unknown {
  return Array.isArray(body) ? body.toSpliced(2, 1) : body
}

function isTwice(path: string): boolean {
  const names = (path.split('?')[1] ?? '').split('&').map((pair) => pair.split('=')[0])
  return new Set(names).size < names.length
}

interface Failure {
  readonly error?: string
  readonly reason?: string
}

function errorOf({ body }: Comparable): Failure {
  return typeof body === 'object' && body !== null ? body : {}
}

function shown({ path, body = '' }: Difference['step']): string {
  return `${path} ${body.toString()}`
}

/** Whether two values are alike but for what a pattern finds in their text. @param by an empty text: one of them may lack it */
function isEqualBut(a: unknown, b: unknown, pattern: RegExp, by = '?'): boolean {
  const [one, other] = [a, b].map((value) => ordered(value).replace(pattern, by))
  return one === other
}

/** The texts in a value. */
function quoted(value: unknown): string[] {
  return JSON.stringify(value)?.match(/"[^"]*"/g) ?? []
}

/** The text of a value, in which the order of members does not matter. */
function ordered(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) => {
    if (typeof each !== 'object' || each === null || Array.isArray(each)) return each
    return Object.fromEntries(Object.entries(each).sort())
  })
}

/** Its lists without an order, and without what a pattern finds. */
function sorted(value: unknown, pattern = /^$/g): unknown {
  if (Array.isArray(value)) {
    return value.map((each) => ordered(sorted(each, pattern)).replace(pattern, '?')).sort()
  }
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, sorted(each, pattern)]))
}
