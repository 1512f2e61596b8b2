/**
 * What CouchDB's feeds and attachments have (sections 5 and 7 of the protocol), and the vectors about them and about
 * rights; as parameters.ts has it for the rest.
 */
import { keys, vectors } from './parameters.ts'

const FEEDS = [
  ...keys('5.1', ['feed', 'since', 'since as a time', 'last-event-id', 'limit', 'descending', 'style']),
  ...keys('5.1', [
    'include_docs',
    'conflicts',
    'attachments',
    'att_encoding_info',
    'filter',
    'view',
    'heartbeat',
  ]),
  ...keys('5.1', ['timeout', 'seq_interval', 'others', 'names', 'doc_ids', 'selector', 'fields']),
  ...keys('5.2', ['one row a document', 'deleted', 'changes', 'doc', 'error', 'kinds of documents', 'order']),
  ...keys('5.3', [
    'normal',
    'longpoll',
    'continuous',
    'eventsource',
    'empty',
    'pending',
    'last_seq',
    'limit=0',
  ]),
  ...keys('5.3', ['chunks of 1490 bytes']),
  ...keys('5.4', ['normal', 'longpoll', 'continuous', 'eventsource', 'descending', 'timeout=0', 'heartbeat']),
  ...keys('5.4', [
    'idle timer',
    'server stop',
    'database deleted',
    'fabric/changes_duration',
    'maintenance mode',
  ]),
  ...keys('5.4', ['disconnect', 'since=now', 'ETag', 'POST without body', 'HEAD']),
]

const FILTERS = [
  ...keys('5.5', ['_doc_ids', '_selector', '_design', '_view', 'function', 'req', 'main_only', 'all_docs']),
  ...keys('5.5', ['doc', 'last_seq', 'limit']),
  ...keys('5.6', [
    'design document',
    'function absent',
    'two parts',
    'builtin',
    'view',
    'doc_ids',
    'selector',
  ]),
  ...keys('5.6', ['content type', 'exception']),
]

const ATTACHMENTS = [
  ...keys('7.1', [
    'inline',
    'content_type',
    'what is ignored',
    'stub',
    'stub revpos',
    'stub without a match',
  ]),
  ...keys('7.1', [
    'follows',
    'read stub',
    'read inline',
    'read follows',
    'left out',
    'base64',
    'empty content',
  ]),
  ...keys('7.1', ['revpos', 'digest', 'md5 of what follows', 'encoding', 'names', 'size limit', 'a change']),
  ...keys('7.2', ['boundary', 'first part', 'order', 'filename', 'part headers', 'lengths', 'parts', 'end']),
  ...keys('7.2', ['answer', 'new_edits=false']),
  ...keys('7.3', ['condition', 'Accept', 'form', 'gzip', 'HEAD']),
]

const ADDRESSES = [
  ...keys('7.4', ['GET', 'HEAD', 'headers', '404', 'rev', 'If-None-Match', 'Accept-Encoding', 'gzip']),
  ...keys('7.4', ['csp/attachments_enable', 'other methods', 'design documents']),
  ...keys('7.4 PUT', ['new document', 'Location', 'rev', 'If-Match', 'Content-Type', 'Content-Encoding']),
  ...keys('7.4 PUT', ['Content-MD5', 'in chunks', 'Expect', 'empty', '400', '409', '413']),
  ...keys('7.4', ['PUT', 'DELETE', 'DELETE rev', 'DELETE If-Match', 'DELETE 404', 'DELETE 409']),
  ...keys('7.4 Range:', [
    'one',
    'from 0',
    'beyond the end',
    '416',
    'two to nine',
    'ten and more',
    'malformed',
  ]),
  ...keys('7.4 Range:', ['gzip', 'If-Range']),
]

const RIGHTS = [
  ...keys('19.7', [
    'GET /db',
    'GET doc',
    'PUT doc',
    '_bulk_docs',
    '_changes',
    '_find',
    '_local',
    'attachments',
  ]),
  ...keys('19.7', ['PUT design document', 'PUT _security', 'PUT _revs_limit', '_compact', '_purge']),
  ...keys('19.7', ['PUT /newdb', 'DELETE /db', '_all_dbs', '_node', '_active_tasks', '_replicate']),
  ...keys('19.7', ['welcome', '_up', '_uuids', '_session', 'wrong password']),
]

export const PARAMETERS: readonly string[] = [
  ...FEEDS,
  ...FILTERS,
  ...ATTACHMENTS,
  ...ADDRESSES,
  ...RIGHTS,
  ...vectors('19.5', 14),
  ...vectors('19.6', 14),
]

/** What has no row, with the reason; docs/compatibility.md names each of them. */
export const OMITTED: Readonly<Record<string, string>> = {
  '5.1 since as a time': 'only the branch behind CouchDB 3.5.0 has it',
  '5.3 chunks of 1490 bytes': 'how an answer is cut into chunks means nothing to its reader',
  '5.4 fabric/changes_duration': 'no setting ends a feed that is read',
  '5.4 maintenance mode': 'there is none',
  '19.7 _session': 'absent',
}

/** What no row can say, since it is about time, or about bytes on their way: the tests that do. */
export const ELSEWHERE: Readonly<Record<string, readonly [file: string, test: string]>> = {
  '7.4 csp/attachments_enable': [
    'test/http/page-policy.test.ts',
    'only section [csp] changes the policy of attachments',
  ],
  '5.4 idle timer': ['test/changes/feed.test.ts', 'the timeout starts again with each change'],
  '5.4 server stop': ['test/http/changes.test.ts', 'a server stops at once, even if clients reconnect'],
  '5.4 disconnect': ['test/changes/feed.test.ts', 'a feed ends at once when its client disconnects'],
  '7.4 PUT in chunks': [
    'test/http/attachment-writes.test.ts',
    'uploads in chunks, with Expect, and without a body',
  ],
  '7.4 PUT Expect': [
    'test/http/attachment-writes.test.ts',
    'uploads in chunks, with Expect, and without a body',
  ],
}
