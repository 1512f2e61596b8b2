/**
 * What CouchDB's documents and databases have (sections 3, 4 and 8 of the protocol): every parameter, header, answer
 * and rule by name, and the vectors by number. `complete.test.ts` holds that each has a row. Feeds and attachments
 * (5, 7) are in feed-parameters.ts.
 */

/** Keys such as `3.1 rev`. */
export function keys(section: string, names: readonly string[]): string[] {
  return names.map((name) => `${section} ${name}`)
}

/** Keys such as `19.1 #1`. */
export function vectors(section: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${section} #${index + 1}`)
}

const READING = [
  ...keys('3.1', [
    'rev',
    'revs',
    'revs_info',
    'conflicts',
    'deleted_conflicts',
    'meta',
    'local_seq',
    'latest',
  ]),
  ...keys('3.1', ['open_revs', 'attachments', 'att_encoding_info', 'atts_since', 'deleted', 'r']),
  ...keys('3.1', ['unknown parameters', 'only true is on', 'order of members', 'HEAD', 'design document']),
  ...keys('3.1', [
    'local document',
    'ETag',
    'ETag of _local',
    'no ETag with meta',
    'If-None-Match',
    'meta with rev',
  ]),
  ...keys('3.1', ['404 missing', '404 deleted', '404 database', '400 rev', '400 JSON']),
  ...keys('3.2', [
    'all',
    'list',
    'latest',
    'unknown document',
    'ancestor without body',
    'order',
    'JSON bytes',
  ]),
  ...keys('3.2', ['Accept', 'multipart framing', 'multipart attachments', 'multipart missing']),
]

const WRITING = [
  ...keys('3.3', [
    'JSON body',
    'multipart body',
    'content type unchecked',
    '_rev',
    '_revisions',
    'rev',
    'If-Match',
  ]),
  ...keys('3.3', ['body, query and header agree', 'new_edits=false', 'new_edits=false rev', 'batch=ok']),
  ...keys('3.3', [
    'X-Couch-Full-Commit',
    '201',
    '200 for _deleted',
    'never existed, no rev',
    'never existed, a rev',
  ]),
  ...keys('3.3', [
    'live, no rev',
    'live, a live leaf',
    'live, no leaf',
    'live, a deleted leaf',
    'deleted, no rev',
  ]),
  ...keys('3.3', ['deleted, no rev, _deleted', 'deleted, a rev', 'refusals']),
  ...keys('3.4', ['rev', 'If-Match', 'answer', 'missing', 'deleted', 'no rev', 'no leaf', 'losing leaf']),
  ...keys('3.5', [
    'body',
    'generated id',
    '_id',
    'Location',
    'no ETag',
    'batch=ok',
    'new_edits',
    'Content-Type',
  ]),
  ...keys('3.5', ['_deleted']),
  ...keys('3.6', ['Destination', 'Destination rev', 'Destination relative', 'Destination percent-encoding']),
  ...keys('3.6', ['rev', 'If-Match', 'attachments', 'answer', '404', '409']),
  ...keys('3.7', ['_attachments', '_rev', '_doc', 'Referer', 'content type', 'JSON']),
]

const LOCAL = [
  ...keys('3.8', ['GET', 'HEAD', 'PUT', 'DELETE', 'POST', '_bulk_docs', '_bulk_get', 'COPY', 'revs']),
  ...keys('3.8', [
    'new_edits=false',
    'new_edits=false, bad rev',
    'no conflict',
    'bad rev',
    'deleted',
    'not listed',
  ]),
  ...keys('3.8', ['not validated', 'attachments', 'size']),
]

const HEADERS = [
  ...keys('3.9', ['X-Couch-Full-Commit', 'X-Couch-Persist', 'X-Couch-Update-NewRev', 'X-Couch-Id']),
  ...keys('3.9', ['X-Couch-Request-ID', 'X-CouchDB-Body-Time', 'X-Couch-Stack-Hash']),
  ...keys('3.9', ['X-CouchDB-WWW-Authenticate', 'X-CouchDB-Vhost-Path', 'X-CouchDB-Requested-Path']),
  ...keys('3.9', ['Host', 'X-Forwarded-Ssl', 'X-Forwarded-Proto', 'X-Forwarded-Host']),
]

const BULK = [
  ...keys('4.1', [
    'docs',
    'new_edits',
    'all_or_nothing',
    'w',
    'row',
    'failed row',
    'failed row, new_edits=false',
  ]),
  ...keys('4.1', ['row conflict', 'row forbidden', 'row design rights', 'row invalid_design_doc']),
  ...keys('4.1', ['row compilation_error', 'whole: JSON', 'whole: no object', 'whole: _id', 'whole: _rev']),
  ...keys('4.1', ['whole: _revisions', 'whole: unknown member', 'whole: attachment', 'whole: too large']),
  ...keys('4.1', ['whole: stub', 'whole: no rev', 'whole: _users', 'generated id', 'same id twice']),
  ...keys('4.1', ['same id twice, new_edits=false', 'deleted and made', '_local', 'attachments', 'no docs']),
  ...keys('4.2', [
    'docs',
    'id',
    'rev',
    'atts_since',
    'revs',
    'attachments',
    'latest',
    'att_encoding_info',
    'r',
  ]),
  ...keys('4.2', [
    'refused parameters',
    'order',
    'found',
    'no rev',
    'rev with latest',
    'unknown',
    'unknown, no rev',
  ]),
  ...keys('4.2', [
    'malformed rev',
    'illegal id',
    'no id',
    'no object',
    'atts_since no list',
    'Accept',
    'multipart',
  ]),
  ...keys('4.3', [
    '_revs_diff',
    '_missing_revs',
    'known revs',
    'unknown document',
    'possible_ancestors',
    'bad rev',
  ]),
  ...keys('4.3', ['_local', 'read rights']),
]

const DATABASES = [
  ...keys('4.4', ['PUT', 'PUT q', 'PUT n', 'PUT partitioned', 'PUT placement', 'PUT engine', 'PUT Location']),
  ...keys('4.4', ['PUT refusals', 'DELETE', 'DELETE rev', 'DELETE refusals', 'GET', 'HEAD']),
  ...keys('4.4', ['_all_dbs', '_all_dbs descending', '_all_dbs limit', '_all_dbs skip', '_all_dbs startkey']),
  ...keys('4.4', ['_all_dbs endkey', '_all_dbs inclusive_end', '_all_dbs ETag', '_all_dbs rights']),
  ...keys('4.4', [
    '_dbs_info',
    '_dbs_info parameters',
    '_dbs_info keys',
    '_dbs_info refusals',
    'system databases',
  ]),
  ...keys('4.5', [
    'db_name',
    'update_seq',
    'purge_seq',
    'doc_count',
    'doc_del_count',
    'sizes',
    'compact_running',
  ]),
  ...keys('4.5', ['disk_format_version', 'instance_start_time', 'cluster', 'props', 'nothing of 1.x']),
  ...keys('4.6', ['_ensure_full_commit', '_compact', '_compact rights', '_compact ddoc', '_view_cleanup']),
  ...keys('4.6', ['GET _revs_limit', 'PUT _revs_limit', 'PUT _revs_limit junk', 'stemming']),
  ...keys('4.6', [
    'GET _purged_infos_limit',
    'PUT _purged_infos_limit',
    '_purged_infos',
    '_auto_purge',
    '_time_seq',
  ]),
  ...keys('4.6', ['_shards', '_sync_shards']),
  ...keys('4.7', [
    'rights',
    'body',
    'answer',
    'unknown',
    'inner revision',
    'rows that fail',
    'max_revisions_number',
  ]),
  ...keys('4.7', ['forgotten', 'wholly purged', 'partly purged', 'views']),
  ...keys('4.8', [
    'GET',
    'GET default',
    'PUT',
    'PUT rights',
    'unknown keys',
    'readers',
    'bad shape',
    'not versioned',
  ]),
  ...keys('4.8', ['public', 'rights of admins', 'rights of members', 'roles', '_admin']),
  ...keys('4.9', [
    'feed',
    'since',
    'limit',
    'descending',
    'timeout',
    'heartbeat',
    'rows',
    'bad numbers',
    'rights',
  ]),
  ...keys('4.9', ['_global_changes']),
]

const LISTS = [
  ...keys('8.1', [
    'key',
    'keys',
    'startkey',
    'start_key',
    'endkey',
    'end_key',
    'inclusive_end',
    'descending',
  ]),
  ...keys('8.1', [
    'limit',
    'skip',
    'include_docs',
    'conflicts',
    'attachments',
    'att_encoding_info',
    'update_seq',
  ]),
  ...keys('8.1', [
    'startkey_docid',
    'endkey_docid',
    'stale',
    'update',
    'stable',
    'sorted',
    'reduce',
    'group',
  ]),
  ...keys('8.1', ['unknown parameters', 'query over body', 'keys with others']),
  ...keys('8.2', [
    'framing',
    'no ETag',
    'row',
    'row of an unknown id',
    'row of a deleted document',
    'total_rows',
  ]),
  ...keys('8.2', ['offset', 'order', 'no deleted documents', 'no rows', 'no keys']),
  ...keys('8.3', ['POST', 'POST keys null', 'POST keys of the wrong type', 'queries', '_design_docs']),
  ...keys('8.3', ['_design_docs queries', '_design_docs keys', '_local_docs', '_local_docs queries']),
  ...keys('8.3', ['_local_docs include_system', '_users and _replicator']),
]

const VECTORS = [
  ...vectors('19.1', 5),
  ...vectors('19.2', 9),
  ...vectors('19.3', 6),
  ...vectors('19.4', 15),
  ...vectors('19.8', 16),
]

export const PARAMETERS: readonly string[] = [
  ...READING,
  ...WRITING,
  ...LOCAL,
  ...HEADERS,
  ...BULK,
  ...DATABASES,
  ...LISTS,
  ...VECTORS,
]

/** What has no row, with the reason; docs/compatibility.md names each of them. */
export const OMITTED: Readonly<Record<string, string>> = {
  '3.9 X-Couch-Stack-Hash': 'a 500 names the request in its log instead',
  '3.9 X-CouchDB-Vhost-Path': 'there are no rewrites',
  '3.9 X-CouchDB-Requested-Path': 'there are no rewrites',
  '4.6 _auto_purge': 'absent',
  '4.6 _time_seq': 'absent',
  '4.6 _shards': 'absent',
  '4.6 _sync_shards': 'absent',
}

/** What no row can say: the tests that do. */
export const ELSEWHERE: Readonly<Record<string, readonly [file: string, test: string]>> = {
  '3.9 X-Couch-Update-NewRev': ['test/protocol/couchapps.test.ts', 'updates'],
  '3.9 X-Couch-Id': ['test/protocol/couchapps.test.ts', 'updates'],
  '4.1 whole: _users': [
    'test/documents/users-database.test.ts',
    'a document of another user refuses the whole bulk, an invalid document does not',
  ],
  '4.7 rows that fail': [
    'test/documents/purge.test.ts',
    'a disk error is in the row of one document, and fails the request if it affects all',
  ],
}
