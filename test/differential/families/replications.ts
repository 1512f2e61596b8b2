/** Replications between the two databases of a case, and documents of its replicator database. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { branch, hash, pathOf, share } from './branches.ts'
import { type Family, get, IDS, json } from './family.ts'
import { selector } from './mango.ts'

const options = (c: Choices): Record<string, unknown> => ({
  ...(c.chance(0.2) && { doc_ids: c.mostly<unknown>([c.some(IDS, 0.4)], [1, {}, [1], 'x'], 0.15) }),
  ...(c.chance(0.2) && {
    filter: c.mostly(['d/n', 'd/all'], ['d/none', 'x', '', 1], 0.2),
    query_params: { n: '1' },
  }),
  ...(c.chance(0.2) && { selector: selector(c, 1) }),
  ...(c.chance(0.1) && { create_target: c.mostly<unknown>([true, false], ['x', 1], 0.2) }),
  ...(c.chance(0.05) && { continuous: c.pick<unknown>([false, 'x', null]) }),
  ...(c.chance(0.05) && { cancel: c.pick<unknown>([false, true]) }),
  ...(c.chance(0.05) && { since_seq: c.pick<unknown>(['0', 'x']) }),
  ...(c.chance(0.05) && { use_checkpoints: c.pick<unknown>([false, true, 'x']) }),
  ...(c.chance(0.05) && { winning_revs_only: c.pick<unknown>([false, true]) }),
  ...(c.chance(0.05) && { x: 1 }),
})

const address = (name: string) => `{self}/${name}`

const ends = (c: Choices): Record<string, unknown> => {
  const [source, target] = c.chance(0.8) ? ['{db}', '{other}'] : ['{other}', '{db}']
  return c.mostly<Record<string, unknown>>(
    [{ source: address(source), target: address(target) }],
    [
      { source, target },
      { source: address('none'), target: address(target) },
      { source: address(source) },
      {},
      { source: 1, target: 2 },
      { source: address(source), target: address('none') },
      { source: '', target: '' },
      { source: { url: address(source) }, target: { url: address(target) } },
    ],
    0.2,
  )
}

function step(c: Choices): Step {
  const db = c.pick(['{db}', '{other}'])
  switch (c.weighted({ replicate: 30, write: 25, read: 20, doc: 6, remove: 6, checkpoint: 3, info: 4 })) {
    case 'replicate':
      return json('POST', '/_replicate', { ...ends(c), ...options(c) })
    case 'write': {
      const of = c.pick(IDS)
      const revisions = pathOf(c, branch(c))
      const rev = revisions.ids[0] as string
      return json('POST', `/${db}/_bulk_docs`, {
        new_edits: false,
        docs: [
          {
            _id: of,
            _revisions: revisions,
            n: share(rev, 'n') < 0.5 ? 1 : 2,
            ...(share(rev, 'deleted') < 0.15 && { _deleted: true }),
            ...(share(rev, 'attachment') < 0.15 && { _attachments: { a: { data: 'aGk=' } } }),
          },
        ],
      })
    }
    case 'read':
      return get(
        `/${db}/${c.pick(['_all_docs?include_docs=true&conflicts=true', '_changes?style=all_docs&include_docs=true', 'd1?revs=true&conflicts=true', 'd0?open_revs=all'])}`,
        { Accept: 'application/json' },
      )
    case 'checkpoint':
      return get(`/${db}/_local_docs`)
    case 'info':
      return get(`/${db}`)
    case 'doc':
      return json('PUT', `/${db}/_design/d`, {
        _rev: '{rev:_design/d}',
        filters: {
          n: 'function (doc, req) { return String(doc.n) === req.query.n }',
          all: 'function () { return true }',
        },
        ...(c.chance(0.4) && {
          validate_doc_update: 'function (doc) { if (doc.n === 2) throw({ forbidden: "two" }) }',
        }),
      })
    case 'remove':
      return { method: 'DELETE', path: `/${db}/d1?rev=1-${hash('a')}` }
  }
}

function begin(c: Choices): Step[] {
  return [
    { method: 'PUT', path: '/{other}?q=1' },
    json('PUT', '/{db}/_design/d', {
      filters: {
        n: 'function (doc, req) { return String(doc.n) === req.query.n }',
        all: 'function () { return true }',
      },
    }),
    ...c.list(5, () => step(c)).filter(({ path }) => path.includes('_bulk_docs')),
  ]
}

export const replications: Family = { begin, step, steps: 10 }
