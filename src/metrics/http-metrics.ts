/** The metrics of requests: CouchDB's own under its names, then settee's. */
import { clientsOfFeeds, requestSeconds, requestsBy, requestsOf, statusesOf, VIEWS } from './couch-stats.ts'
import {
  histogramSamples,
  type Measurements,
  type Metric,
  type Sample,
  single,
  summarySamples,
} from './metric.ts'

export const HTTP_METRICS: readonly Metric<Measurements>[] = [
  {
    name: 'couchdb_httpd_requests_total',
    type: 'counter',
    help: 'Answered requests.',
    read: ({ http }) => single(requestsBy(http, ({ status }) => status !== null)),
  },
  {
    name: 'couchdb_httpd_request_methods',
    type: 'counter',
    help: 'Requests by method.',
    labels: ['method'],
    read: ({ http }) =>
      labelled(
        'method',
        requestsOf(http, ({ method }) => method),
      ),
  },
  {
    name: 'couchdb_httpd_status_codes',
    type: 'counter',
    help: 'Answers by status.',
    labels: ['code'],
    read: ({ http }) => labelled('code', statusesOf(http)),
  },
  {
    name: 'couchdb_httpd_bulk_requests_total',
    type: 'counter',
    help: 'Requests to _bulk_docs and _bulk_get.',
    read: ({ http }) => single(requestsBy(http, ({ route }) => /^\/:db\/_bulk_(?:docs|get)$/.test(route))),
  },
  {
    name: 'couchdb_httpd_view_reads_total',
    type: 'counter',
    help: 'Requests to views.',
    read: ({ http }) => single(requestsBy(http, ({ route }) => VIEWS.test(route))),
  },
  {
    name: 'couchdb_httpd_purge_requests_total',
    type: 'counter',
    help: 'Requests to _purge.',
    read: ({ http }) => single(requestsBy(http, ({ route }) => route === '/:db/_purge')),
  },
  {
    name: 'couchdb_httpd_clients_requesting_changes',
    type: 'gauge',
    help: 'Feeds of _changes and _db_updates that wait for more: longpoll, continuous, eventsource.',
    read: ({ http }) => single(clientsOfFeeds(http)),
  },
  {
    name: 'couchdb_request_time_seconds',
    type: 'summary',
    help: 'Seconds from the head of a request to the end of its answer; without quantiles.',
    read: ({ http }) => summarySamples(requestSeconds(http)),
  },
  {
    name: 'settee_http_requests_total',
    type: 'counter',
    help: 'Finished requests. The status aborted means that the client left before the answer.',
    labels: ['route', 'method', 'status'],
    read: ({ http }) =>
      http.requests.map(({ route, method, status, count }) => ({
        labels: { route, method, status: status === null ? 'aborted' : String(status) },
        value: count,
      })),
  },
  {
    name: 'settee_http_request_duration_seconds',
    type: 'histogram',
    help: 'Seconds from the head of a request to the end of its answer, without feeds that wait.',
    labels: ['class', 'method'],
    read: ({ http }) =>
      http.durations.flatMap(({ class: name, method, seconds }) =>
        histogramSamples(seconds, { class: name, method }),
      ),
  },
  {
    name: 'settee_http_broken_answers_total',
    type: 'counter',
    help: 'Answers that broke off: the client left, or the answer failed.',
    read: ({ http }) => single(http.broken),
  },
  {
    name: 'settee_http_invalid_requests_total',
    type: 'counter',
    help: 'Invalid requests: not HTTP, or a head that was too large or took too long.',
    read: ({ http }) => single(http.invalid),
  },
  {
    name: 'settee_http_requests_under_way',
    type: 'gauge',
    help: 'Requests under way, including feeds that wait.',
    read: ({ http }) => single(http.underWay),
  },
  {
    name: 'settee_open_feeds',
    type: 'gauge',
    help: 'Open feeds by kind.',
    labels: ['feed'],
    read: ({ http }) => labelled('feed', new Map(Object.entries(http.openFeeds))),
  },
  {
    name: 'settee_http_open_connections',
    type: 'gauge',
    help: 'Open connections, including idle ones.',
    read: ({ http }) => single(http.openConnections),
  },
  {
    name: 'settee_http_connections_total',
    type: 'counter',
    help: 'Connections opened so far.',
    read: ({ http }) => single(http.connections),
  },
  {
    name: 'settee_http_received_bytes_total',
    type: 'counter',
    help: 'Bytes received over all connections.',
    read: ({ http }) => single(http.receivedBytes),
  },
  {
    name: 'settee_http_sent_bytes_total',
    type: 'counter',
    help: 'Bytes sent over all connections.',
    read: ({ http }) => single(http.sentBytes),
  },
  {
    name: 'settee_body_memory_bytes',
    type: 'gauge',
    help: 'Bytes of request bodies in memory.',
    read: ({ http }) => single(http.bodyMemory.used),
  },
  {
    name: 'settee_body_memory_limit_bytes',
    type: 'gauge',
    help: 'Limit for bytes of request bodies in memory: settee/body_memory.',
    read: ({ http }) => single(http.bodyMemory.size),
  },
  {
    name: 'settee_body_files_bytes',
    type: 'gauge',
    help: 'Bytes of request bodies in files.',
    read: ({ http }) => single(http.bodyFiles.used),
  },
  {
    name: 'settee_body_files_limit_bytes',
    type: 'gauge',
    help: 'Limit for bytes of request bodies in files: settee/body_disk_share of the free space; absent if the free space is unknown.',
    read: ({ http: { bodyFiles } }) => single(bodyFiles.size === Infinity ? null : bodyFiles.size),
  },
  {
    name: 'settee_credential_checks_total',
    type: 'counter',
    help: 'Checked pairs of name and password, by outcome: right or wrong.',
    labels: ['outcome'],
    read: ({ credentials: { right, wrong } }) =>
      labelled(
        'outcome',
        new Map([
          ['right', right],
          ['wrong', wrong],
        ]),
      ),
  },
  {
    name: 'settee_credential_hashes_total',
    type: 'counter',
    help: 'Passwords that had to be hashed because the pair was not in the cache.',
    read: ({ credentials }) => single(credentials.hashed),
  },
  {
    name: 'settee_credential_checks_waiting',
    type: 'gauge',
    help: 'Passwords waiting to be hashed.',
    read: ({ credentials }) => single(credentials.waiting),
  },
]

function labelled(label: string, values: ReadonlyMap<string, number>): Sample[] {
  return [...values].map(([name, value]) => ({ labels: { [label]: name }, value }))
}
