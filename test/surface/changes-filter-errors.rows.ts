/** Requests that are refused before the first byte: protocol.md 5.6, and 1.2 on the body of `_changes`. */
import type { Answer } from './answers.ts'
import { type Ask, failed, put, type Row } from './table.ts'

const refused = (reason: string): Answer => failed(400, 'bad_request', reason)
const absent = (reason: string): Answer => failed(404, 'not_found', reason)
const filter = (name: string): string => `GET /{db}/_changes?filter=${name}`
const selector = (json: unknown): Ask => ['POST /{db}/_changes?filter=_selector', { json }]

const DESIGN = put('_design/d', {
  filters: {
    fails: "() => { throw new Error('sour') }",
    failsAt: "(doc) => { if (doc._id === 'x') throw new Error('sour'); return true }",
    broken: '(doc) => {',
  },
  views: { fails: { map: "(doc) => { throw new Error('sour') }" } },
})

export const rows: readonly Row[] = [
  {
    of: '5.6 design document',
    says: 'absent',
    steps: [
      [filter('nowhere/f'), absent('missing')],
      [filter('_view&view=nowhere/v'), absent('missing')],
    ],
  },
  {
    of: '5.6 design document',
    says: 'deleted',
    given: [
      put('_design/d', { filters: { f: '() => true' } }, { keep: { rev: 'rev' } }),
      'DELETE /{db}/_design/d?rev={rev}',
    ],
    ask: filter('d/f'),
    answer: absent('deleted'),
  },
  {
    of: '5.6 function absent',
    says: 'names the member that is missing',
    given: [put('_design/empty'), DESIGN],
    steps: [
      [filter('empty/f'), absent('missing json key: filters')],
      [filter('d/f'), absent('missing json key: f')],
      [filter('_view&view=empty/v'), absent('missing json key: views')],
      [filter('_view&view=d/v'), absent('missing json key: v')],
    ],
  },
  {
    of: '5.6 function absent',
    says: 'another language than JavaScript is named',
    given: [put('_design/erl', { language: 'erlang', filters: { f: 'fun' }, views: { v: { map: 'fun' } } })],
    steps: [filter('erl/f'), filter('_view&view=erl/v')].map((ask) => [
      ask,
      { status: 500, json: { error: 'unknown_query_language', reason: 'erlang' } },
    ]),
  },
  {
    of: '5.6 two parts',
    says: 'a function is named by its design document and itself',
    steps: ['d', 'd/', 'd/e/f'].map((name) => [
      filter(name),
      refused('`filter` must be of the form `designname/filtername`'),
    ]),
  },
  {
    of: '5.6 builtin',
    says: 'one that there is',
    steps: [
      [filter('_nothing'), refused('unknown builtin filter name')],
      [filter('_design/f'), refused('unknown builtin filter name')],
    ],
  },
  {
    of: '5.6 view',
    says: '_view needs one',
    steps: [
      [filter('_view'), refused('`view` filter parameter is not provided.')],
      [filter('_view&view='), refused('`view` filter parameter is not provided.')],
    ],
  },
  {
    of: '5.6 doc_ids',
    says: '_doc_ids needs a list of texts',
    steps: [
      [filter('_doc_ids'), refused('`doc_ids` filter parameter is not a list of doc ids.')],
      [filter('_doc_ids&doc_ids=%22a%22'), refused('`doc_ids` filter parameter is not a list of doc ids.')],
      [filter('_doc_ids&doc_ids=%5B'), refused('invalid UTF-8 JSON')],
      [
        ['POST /{db}/_changes?filter=_doc_ids&doc_ids=%5B%22a%22%5D', { json: {} }],
        refused('`doc_ids` filter parameter is not a list of doc ids.'),
      ],
      ...['a', [1], { a: 1 }].map(
        (doc_ids) =>
          [
            ['POST /{db}/_changes?filter=_doc_ids', { json: { doc_ids } }],
            refused('`doc_ids` filter parameter is not a list of doc ids.'),
          ] as const,
      ),
    ],
  },
  {
    of: '5.6 selector',
    says: '_selector needs one, in the body of a POST',
    steps: [
      [filter('_selector'), refused('Selector must be specified in POST payload')],
      [selector({}), refused('Selector error: expected a JSON object')],
      [selector({ selector: 'all' }), refused('Selector error: expected a JSON object')],
      [selector({ selector: { a: 1 }, fields: 'a' }), refused('Selector error: fields must be JSON array')],
      [selector({ selector: { a: { $likes: 1 } } }), refused('Invalid operator: $likes')],
    ],
  },
  {
    of: '5.6 content type',
    says: 'a POST must have the content type JSON',
    steps: [
      [
        ['POST /{db}/_changes', { headers: { 'Content-Type': 'text/plain' }, body: '{}' }],
        failed(415, 'bad_content_type', 'Content-Type must be application/json'),
      ],
      [
        ['POST /{db}/_changes', { body: '{}' }],
        failed(415, 'bad_content_type', 'Content-Type must be application/json'),
      ],
    ],
  },
  {
    of: '5.6 exception',
    says: 'in a filter function before the first byte: 500',
    given: [DESIGN, put('x')],
    steps: ['normal', 'longpoll', 'continuous&heartbeat=60000', 'eventsource'].map((feed) => [
      filter(`d/fails&feed=${feed}`),
      { status: 500, like: { error: /./, reason: /sour/ } },
    ]),
  },
  {
    of: '5.6 exception',
    says: 'in a filter function later on: the connection breaks',
    given: [DESIGN],
    steps: [
      [
        [filter('d/failsAt&feed=continuous&heartbeat=60000'), { meanwhile: [put('x')] }],
        { broken: true, ids: ['_design/d'] },
      ],
    ],
  },
  {
    of: '5.6 exception',
    says: 'in a map function: that document does not pass',
    given: [DESIGN, put('x')],
    ask: filter('_view&view=d/fails'),
    answer: { ids: [], like: { last_seq: /^2-/ } },
  },
  {
    of: '5.6 exception',
    says: 'a filter function that does not compile',
    given: [DESIGN],
    ask: filter('d/broken'),
    answer: { status: 500, like: { error: 'compilation_error', reason: /./ } },
  },
]
