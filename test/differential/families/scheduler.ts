/** Documents of a replicator database, continuous replications, and what the scheduler says of them. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { type Family, filled, get, json, query, type Value } from './family.ts'
import { selector } from './mango.ts'

const DOCS = ['r0', 'r1'] as const
/** What the scheduler says once a job has come to rest, or if there is none. */
const AT_REST = /"state":"(completed|failed|crashing|error)"|"error":"not_found"/

const number: Value = (c) => c.mostly(['0', '1', '2', '100'], ['-1', 'x', '', '1.5'], 0.15)
const LISTING: Readonly<Record<string, Value>> = {
  limit: number,
  skip: number,
  states: (c) =>
    c.mostly(
      ['completed', 'failed', 'running', 'completed,failed', 'pending,initializing', 'error,crashing'],
      ['x', '', 'completed,x', ','],
      0.15,
    ),
}

function ends(c: Choices): Record<string, unknown> {
  return c.mostly<Record<string, unknown>>(
    [{ source: '{self}/{db}', target: '{self}/{other}' }],
    [
      { source: '{self}/{db}' },
      { target: '{self}/{other}' },
      {},
      { source: 1, target: '{self}/{other}' },
      { source: '', target: '{self}/{other}' },
      { source: 'ftp://x/y', target: '{self}/{other}' },
      { source: { url: '{self}/{db}' }, target: { url: '{self}/{other}' } },
      { source: {}, target: '{self}/{other}' },
      { source: '{db}', target: '{other}' },
    ],
    0.2,
  )
}

function job(c: Choices): Record<string, unknown> {
  return {
    ...ends(c),
    ...(c.chance(0.2) && { doc_ids: c.mostly<unknown>([['d1', 'd2']], [1, {}, [1], 'x'], 0.15) }),
    ...(c.chance(0.2) && { selector: selector(c, 1) }),
    ...(c.chance(0.15) && { filter: c.mostly<unknown>(['d/n'], ['d/none', 'x', 1], 0.2) }),
    ...(c.chance(0.15) && { query_params: c.mostly<unknown>([{ n: '1' }], [1, []], 0.15) }),
    ...(c.chance(0.1) && { create_target: c.mostly<unknown>([true], ['x', 1], 0.2) }),
    ...(c.chance(0.1) && {
      user_ctx: c.mostly<unknown>([{ name: 'admin', roles: ['_admin'] }], [1, {}], 0.3),
    }),
    ...(c.chance(0.05) && { continuous: c.pick<unknown>([false, 'x', 1, null]) }),
    ...(c.chance(0.05) && { use_checkpoints: false }),
    ...(c.chance(0.05) && { worker_batch_size: c.pick<unknown>([1, 0, 'x']) }),
  }
}

/** A document, until its replication has come to rest; what it then says, and what the scheduler says of it. */
function documented(c: Choices): Step[] {
  const of = c.pick(DOCS)
  const path = `/{repl}/${of}`
  return [
    json('PUT', path, { _rev: `{rev:${of}}`, ...job(c) }),
    { ...get(`/_scheduler/docs/{repl}/${of}`), until: AT_REST },
    ...(c.chance(0.7) ? [get(path)] : []),
    ...(c.chance(0.5) ? [get('/{other}/_all_docs?include_docs=true')] : []),
    ...(c.chance(0.5) ? [get(`/_scheduler/docs/{repl}${query(c, LISTING)}`)] : []),
    ...(c.chance(0.4)
      ? [
          { method: 'DELETE', path: `${path}?rev={rev:${of}}` },
          { ...get(`/_scheduler/docs/{repl}/${of}`), until: /"error"/ },
        ]
      : []),
  ]
}

/** A continuous replication that copies a change, and is cancelled. */
function continuous(c: Choices): Step[] {
  const asked = {
    source: '{self}/{db}',
    target: '{self}/{other}',
    continuous: true,
    ...(c.chance(0.3) && { selector: { n: 7 } }),
    ...(c.chance(0.2) && { filter: 'd/n', query_params: { n: '7' } }),
  }
  const of = `c${c.below(1e6)}`
  return [
    json('POST', '/_replicate', asked),
    json('PUT', `/{db}/${of}`, { n: 7 }),
    { ...get(`/{other}/${of}`), until: /"n":7/ },
    ...(c.chance(0.5) ? [json('POST', '/_replicate', asked)] : []),
    json('POST', '/_replicate', { ...asked, cancel: true }),
    ...(c.chance(0.5) ? [json('POST', '/_replicate', { ...asked, cancel: true })] : []),
  ]
}

function step(c: Choices): Step | readonly Step[] {
  switch (
    c.weighted({ document: 30, continuous: 6, docs: 14, doc: 6, jobs: 6, cancel: 8, list: 8, odd: 12 })
  ) {
    case 'document':
      return documented(c)
    case 'continuous':
      return continuous(c)
    case 'docs':
      return get(`/_scheduler/docs/{repl}${query(c, LISTING)}`)
    case 'doc':
      return get(`/_scheduler/docs/{repl}/${c.mostly<string>(DOCS, ['none', ''], 0.1)}`)
    case 'jobs':
      return get(
        `/_scheduler/jobs/${c.pick(['none', '0123456789abcdef0123456789abcdef'])}${query(c, { limit: number }, 1)}`,
      )
    case 'cancel':
      return json('POST', '/_replicate', {
        ...c.pick<object>([
          { source: '{self}/{db}', target: '{self}/{other}' },
          { source: '{self}/{db}', target: '{self}/{other}', continuous: true },
          { id: 'none' },
          { id: 1 },
          { replication_id: 'none' },
        ]),
        cancel: c.mostly<unknown>([true], ['x', 1], 0.1),
      })
    case 'list':
      return get(`/{repl}/${c.pick(['_all_docs', '_local_docs', '_design_docs', '_changes'])}`)
    case 'odd':
      return c.pick<Step>([
        json('POST', '/_scheduler/docs', '{}'),
        json('POST', '/_scheduler/jobs', '{}'),
        { method: 'HEAD', path: '/_scheduler/jobs/none' },
        get('/_scheduler'),
        get('/_scheduler/docs/none'),
        get('/_scheduler/docs/{db}'),
        get('/_scheduler/docs/{repl}/r0/x'),
        get('/_scheduler/jobs/none/x'),
        get('/_scheduler/docs/diff-none%2F_replicator'),
      ])
  }
}

function begin(c: Choices): Step[] {
  return [
    ...filled(c),
    { method: 'PUT', path: '/{other}?q=1' },
    { method: 'PUT', path: '/{repl}?q=1' },
    json('PUT', '/{db}/_design/d', {
      filters: { n: 'function (doc, req) { return String(doc.n) === req.query.n }' },
    }),
  ]
}

export const scheduler: Family = { begin, step, steps: 6 }
