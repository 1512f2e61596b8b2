/** No key of CouchDB's default.ini is passed over without a word. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { KNOWN_KEYS, knownKey } from '../../src/config/defaults.ts'
import { passwordRules } from '../../src/config/password-rules.ts'
import { bindAddress, secureBindAddress } from '../../src/config/settings.ts'
import { checkSetting, newerSection } from '../../src/config/values.ts'

/** The names of the keys of CouchDB 3.5.1, and of those that have come since, by section. */
const COUCHDB_KEYS: Readonly<Record<string, string>> = {
  attachments: 'compressible_types compression_level',
  bt_engine_cache: 'db_btree_cache_depth leave_percent max_size view_btree_cache_depth',
  chttpd:
    'admin_only_all_dbs allow_jsonp authentication_handlers bind_address buffer_response bulk_get_use_batches changes_timeout config_whitelist decode_plus_to_space disconnect_check_jitter_msec disconnect_check_msec enable_cors enable_xframe_options max_db_number_for_dbs_info_req max_http_request_size max_uri_length peer_header port prefer_minimal require_valid_user require_valid_user_except_for_up rewrite_limit scrub_json_request secure_rewrites server_header_versions server_options socket_options x_forwarded_host x_forwarded_proto x_forwarded_ssl',
  chttpd_auth:
    'allow_persistent_cookies auth_cache_size authentication_db authentication_redirect cookie_domain hash_algorithms iterations max_iterations min_iterations password_regexp password_scheme pbkdf2_prf proxy_use_secret public_fields same_site secret timeout upgrade_hash_on_auth users_db_public',
  chttpd_auth_cache: 'max_lifetime max_objects max_size',
  chttpd_auth_lockout: 'max_lifetime max_objects mode threshold',
  cluster: 'n placement q reconnect_interval_sec seedlist',
  config: 'auto_reload_secs',
  cors: 'credentials headers methods origins',
  couch_auto_purge_plugin: 'deleted_document_ttl dry_run log_level max_batch_size min_batch_size',
  couch_httpd_auth: 'authentication_db',
  couch_passwords_cache: 'enable max_idle max_objects',
  couch_peruser: 'database_prefix delete_dbs enable q',
  couch_quickjs_scanner_plugin:
    'after max_batch_items max_batch_size max_ddocs max_docs max_shards max_step repeat',
  couch_scanner:
    'db_rate_limit ddoc_batch_size doc_rate_limit doc_write_rate_limit heal_threshold_sec interval_sec max_penalty_sec min_penalty_sec shard_rate_limit',
  couch_scanner_plugin_conflict_finder: 'conflicts deleted_conflicts doc_report max_revs',
  couch_scanner_plugin_ddoc_features:
    'ddoc_report filters lists reduce rewrites run_on_first_node shows updates validate_doc_update',
  couch_scanner_plugin_find: 'debug',
  'couch_scanner_plugin_find.regexes': 'secret1 secret2',
  couch_scanner_plugins:
    'couch_quickjs_scanner_plugin couch_scanner_plugin_conflict_finder couch_scanner_plugin_ddoc_features couch_scanner_plugin_find nouveau_index_upgrader',
  couchdb:
    'attachment_stream_buffer_size attachment_writer_timeout btree_chunk_size cfile_skip_ioq changes_doc_ids_optimization_threshold compaction_log_level database_dir default_engine default_security delete_after_rename enable_database_recovery file_compression index_cleanup_delay_msec js_engine maintenance_mode max_attachment_size max_couch_server_shards max_dbs_open max_document_id_length max_document_size max_partition_size os_process_timeout plugin_dir prohibit_downgrade single_node stem_interactive_updates time_seq_min_time update_lru_on_read upgrade_in_progress uri_file use_cfile users_db_security_editable util_driver_dir uuid view_index_dir write_xxhash_checksums',
  couchdb_engines: 'couch',
  csp: 'attachments_enable attachments_header_value showlist_enable showlist_header_value utils_enable utils_header_value',
  custodian: 'use_cluster_n_as_expected_n',
  ddoc_cache: 'max_size refresh_timeout',
  disk_monitor:
    'background_view_indexing_threshold enable interactive_database_writes_threshold interactive_view_indexing_threshold',
  dreyfus: 'limit limit_partitions max_limit max_limit_partitions name retry_limit',
  fabric:
    'all_docs_concurrency all_docs_timeout all_docs_view_permsg_timeout attachments_timeout changes_duration nouveau_permsg_timeout nouveau_timeout partition_view_timeout request_timeout search_permsg_timeout search_timeout serialize_worker_startup shard_timeout_factor shard_timeout_min_msec uuid_prefix_len view_permsg_timeout view_timeout',
  global_changes: 'max_event_delay max_write_delay update_db',
  hibernate_after: 'couch_db_updater couch_stream couch_work_queue rexi_buffer',
  httpd: 'authentication_handlers bind_address port server_options socket_options',
  httpd_design_handlers: '_view',
  indexers: 'couch_mrview',
  ioq: 'concurrency ratio',
  'ioq.bypass': 'compaction os_process read shard_sync view_update write',
  jwt_auth: 'required_claims roles_claim_name roles_claim_path',
  log: 'file filter_fields level max_message_size strip_last_msg syslog_appid syslog_facility syslog_host syslog_port write_buffer write_delay writer',
  mango: 'default_limit index_all_disabled index_scan_warning_threshold',
  mem3: 'nodes_db replicate_purges shard_cache_size shards_db sync_concurrency',
  native_query_servers: 'enable_erlang_query_server',
  nouveau: 'enable ssl_cacert_file ssl_cert_file ssl_key_file ssl_password ssl_verify url',
  nouveau_index_upgrader: 'after repeat',
  off_heap_mqd:
    'couch_event_server couch_log_server couch_server ddoc_cache_lru dreyfus_index_manager mem3_shards nouveau_index_manager rexi_server',
  process_priority: 'couch_server',
  prometheus: 'additional_port bind_address interval port',
  purge: 'index_lag_warn_seconds max_revisions_number',
  query_server_config:
    'commit_freq db_tag group_info_timeout os_process_idle_limit os_process_limit os_process_soft_limit partition_query_limit query_limit reduce_limit reduce_limit_ratio reduce_limit_threshold',
  quickjs: 'memory_limit_bytes',
  replicator:
    'auth_plugins cacert_reload_interval_hours cert_file checkpoint_interval cluster_start_period connect_to connection_timeout http_connections interval key_file max_churn max_document_id_length max_jobs missing_doc_retry_msec password priority_coeff request_timeout retries_per_request session_refresh_interval_sec socket_options ssl_certificate_max_depth ssl_trusted_certificates_file startup_jitter usage_coeff use_bulk_get use_checkpoints valid_endpoint_protocols valid_endpoint_protocols_log valid_proxy_protocols valid_socket_options verify_ssl_certificates verify_ssl_certificates_log worker_batch_size worker_processes',
  'replicator.shares': '_replicator',
  reshard:
    'delete_source index_max_retries index_retry_interval_sec max_history max_jobs max_retries require_node_param require_range_param retry_interval_sec source_close_timeout_sec update_shard_map_timeout_sec',
  rexi: 'buffer_count shard_split_timeout_msec shard_split_topoff_batch_size stream_limit use_kill_all',
  smoosh: 'compaction_log_level db_channels persist state_dir view_channels',
  'smoosh.ratio_dbs': 'min_priority priority',
  'smoosh.ratio_views': 'min_priority priority',
  'smoosh.slack_dbs': 'min_priority priority',
  'smoosh.slack_views': 'min_priority priority',
  ssl: 'port',
  stats: 'interval',
  uuids: 'algorithm format max_count utc_id_suffix',
  vendor: 'name',
  view_updater: 'gc_interval_docs min_writer_items min_writer_size queue_item_cap queue_memory_cap',
  view_upgrade: 'commit_on_header_upgrade compact_on_collator_upgrade',
  x_frame_options: 'hosts same_origin',
}

const PAGE = new URL('../../docs/compatibility.md', import.meta.url)

/** What the page says is not read: whole sections, and keys as `section/key`. */
async function declared(): Promise<Set<string>> {
  const [, after = ''] = (await readFile(PAGE, 'utf8')).split('## Settings that are not read')
  const [text = ''] = after.split('\n## ')
  const names = new Set<string>()
  for (const line of text.split('\n').filter((each) => each.startsWith('| `'))) {
    const [, first = ''] = line.split('|')
    let section = ''
    for (const [, name = ''] of first.matchAll(/`([^`]+)`/g)) {
      const slash = name.indexOf('/')
      if (slash !== -1) section = name.slice(0, slash)
      names.add(name.startsWith('[') || slash !== -1 ? name : `${section}/${name}`)
    }
  }
  return names
}

t.test('each key of default.ini is read, or docs/compatibility.md says that it is not', async (t) => {
  const notRead = await declared()
  const isDeclared = (section: string, key: string) =>
    notRead.has(`${section}/${key}`) || notRead.has(`[${section}]`)
  for (const [section, keys] of Object.entries(COUCHDB_KEYS)) {
    for (const key of keys.split(' ')) {
      const known = knownKey(section, key) ?? knownKey(newerSection(section, key) ?? section, key)
      t.not(known !== undefined, isDeclared(section, key), `${section}/${key}`)
    }
  }
})

t.test('docs/operating.md names every key that is read, with its default', async (t) => {
  const page = await readFile(new URL('../../docs/operating.md', import.meta.url), 'utf8')
  const rows = page.split('\n').filter((line) => line.startsWith('| `'))
  for (const { section, key, value } of KNOWN_KEYS) {
    const row = rows.find((line) => new RegExp(`\`(${section}/)?${key}\``).test(line))
    t.ok(row, `${section}/${key}`)
    if (value !== null && value.length < 30) t.match(row, `\`${value}\``, `the default of ${section}/${key}`)
  }
})

t.test('where the server listens', async (t) => {
  const table: [plain: string | undefined, secure: string | undefined, addresses: [string, string]][] = [
    [undefined, undefined, ['127.0.0.1', '127.0.0.1']],
    ['0.0.0.0', undefined, ['0.0.0.0', '0.0.0.0']],
    ['any', undefined, ['::', '::']],
    ['127.0.0.1', 'any', ['127.0.0.1', '::']],
    ['any', '', ['::', '::']],
  ]
  for (const [plain, secure, addresses] of table) {
    const get = (section: string) => (section === 'chttpd' ? plain : secure)
    t.same([bindAddress({ get }), secureBindAddress({ get })], addresses)
  }
})

// `chttpd_auth/password_regexp`, an Erlang list.

t.test('lists of patterns', async (t) => {
  const rule = (pattern: string, reason = '') => ({ pattern, reason })
  const table: [text: string, rules: unknown][] = [
    ['', []],
    ['  ', []],
    ['[]', []],
    ['[ ].', []],
    ['["a"]', [rule('a')]],
    ['[ "a" , {"b"}, {"c", "d e"} ]', [rule('a'), rule('b'), rule('c', 'd e')]],
    ['["\\\\d{2}", {".\\"x", "say \\"x\\""}]', [rule('\\d{2}'), rule('."x', 'say "x"')]],
    ['["\\s\\t\\x41\\x{1F511}\\101\\q"]', [rule(' \tA🔑Aq')]],
  ]
  for (const [text, rules] of table) t.same(passwordRules(text), rules, text)
})

t.test('invalid values', async (t) => {
  const texts = [
    'x',
    '"a"',
    '["a"',
    '["a"] "b"',
    '[a]',
    '["a",]',
    '[{"a","b","c"}]',
    '[{}]',
    '["(]',
    '["\\x{110000}"]',
  ]
  for (const text of texts) t.equal(passwordRules(text), null, text)
})

t.test('over HTTP only a list is taken, with its brackets', async (t) => {
  t.doesNotThrow(() => checkSetting('chttpd_auth', 'password_regexp', '["[a-z]", {"[0-9]", "A digit."}]'))
  t.throws(() => checkSetting('chttpd_auth', 'password_regexp', '["a"'), /must be a list of patterns/)
  t.throws(() => checkSetting('chttpd_auth', 'password_regexp', '["a\n"]'), /Invalid configuration value/)
  for (const [prefix, isGood] of [
    ['userdb-', true],
    ['a/b', true],
    ['', false],
    ['_users', false],
    ['X', false],
    ['a'.repeat(300), false],
  ] as const) {
    const set = () => checkSetting('couch_peruser', 'database_prefix', prefix)
    if (isGood) t.doesNotThrow(set, prefix)
    else t.throws(set, /must be a valid prefix for the name of a database/)
  }
})
