/** Revision trees: replicated branches, deletions, lowered limits, purges and compactions, and everything that shows them. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { branch, hash, pathOf, share } from './branches.ts'
import { type Family, flag, get, HASHES, json, query } from './family.ts'

/** Only with revisions that requests name, since the hashes of one server sort otherwise than those of the other. */
const DOCS = ['h0', 'h1'] as const
function known(c: Choices): string {
  const at = branch(c)
  return `${at.length}-${hash(at)}`
}

function replicated(c: Choices, of: string): Record<string, unknown> {
  const revisions = pathOf(c, branch(c))
  const rev = `${revisions.start}-${revisions.ids[0]}`
  const isWhole = c.chance(0.9)
  return {
    _id: of,
    ...(isWhole && { _revisions: revisions }),
    ...((!isWhole || c.chance(0.5)) && { _rev: rev }),
    ...(share(rev, 'deleted') < 0.25 && { _deleted: true }),
    v: Math.floor(share(rev, 'v') * 3),
    ...(share(rev, 'attachment') < 0.1 && {
      _attachments: { a: { data: 'aGk=', content_type: 'text/plain' } },
    }),
  }
}

/** Forms of revisions that sort among each other as CouchDB has it. */
const FORMS = [
  'a',
  'zz',
  'A',
  '9',
  ...HASHES,
  '96000000000000000000000000000000',
  'ABCDEF00000000000000000000000000',
  'a-b',
  'é',
  `${'0'.repeat(31)}g`,
  '0'.repeat(33),
  'x'.repeat(32),
]

function odd(c: Choices): Record<string, unknown> {
  const start = 1 + c.below(2)
  const ids = Array.from({ length: start }, () => c.pick(FORMS))
  return {
    _id: 'odd',
    ...(c.chance(0.7) ? { _revisions: { start, ids } } : { _rev: `${start}-${ids[0]}` }),
    ...(share(`${ids[0]}`, 'deleted') < 0.2 && { _deleted: true }),
  }
}

const SHOWN = {
  revs: flag,
  revs_info: flag,
  conflicts: flag,
  deleted_conflicts: flag,
  meta: flag,
  latest: flag,
  local_seq: flag,
  open_revs: (c: Choices) => c.pick(['all', `["${known(c)}","${known(c)}"]`, 'all']),
  rev: known,
  attachments: flag,
}

function step(c: Choices): Step {
  const of = c.mostly<string>(DOCS, ['odd'], 0.1)
  const doc = `/{db}/${of}`
  switch (
    c.weighted({
      write: 26,
      put: 6,
      odd: 4,
      delete: 5,
      get: 22,
      bulkGet: 4,
      diff: 9,
      missing: 3,
      purge: 4,
      limit: 4,
      infos: 2,
      changes: 6,
      all: 4,
      info: 3,
      purged: 2,
    })
  ) {
    case 'write':
      return json('POST', '/{db}/_bulk_docs', {
        new_edits: false,
        docs: c.some(DOCS, 0.6).map((of) => replicated(c, of)),
      })
    case 'odd':
      return json('POST', '/{db}/_bulk_docs', { new_edits: false, docs: [odd(c), odd(c)] })
    case 'put': {
      const of = c.pick(DOCS)
      return json('PUT', `/{db}/${of}?new_edits=false`, replicated(c, of))
    }
    case 'delete':
      return json('POST', '/{db}/_bulk_docs', {
        new_edits: false,
        docs: [{ _id: c.pick(DOCS), _deleted: true, _revisions: pathOf(c, `${branch(c)}x`) }],
      })
    case 'get':
      return get(doc + query(c, SHOWN, 4), {
        Accept: c.mostly(['application/json'], ['multipart/mixed'], 0.1),
      })
    case 'bulkGet':
      return json('POST', `/{db}/_bulk_get${query(c, { revs: flag, latest: flag, attachments: flag })}`, {
        docs: c.list(4, () => ({ id: c.pick(DOCS), ...(c.chance(0.8) && { rev: known(c) }) })),
      })
    case 'diff':
      return json(
        'POST',
        '/{db}/_revs_diff',
        Object.fromEntries(
          c.list(3, () => [
            c.mostly<string>(DOCS, ['odd', 'none'], 0.2),
            c.mostly<unknown>([c.list(4, () => known(c))], ['1-a', {}, [1], ['x'], null, [''], []], 0.1),
          ]),
        ),
      )
    case 'missing':
      return json(
        'POST',
        '/{db}/_missing_revs',
        Object.fromEntries(c.list(3, () => [c.pick(DOCS), c.list(4, () => known(c))])),
      )
    case 'purge':
      return json(
        'POST',
        '/{db}/_purge',
        Object.fromEntries(
          c.list(2, () => [
            c.mostly<string>(DOCS, ['none'], 0.1),
            c.mostly<unknown>([c.list(3, () => known(c))], [[], '1-a', [1], ['x'], null, {}], 0.12),
          ]),
        ),
      )
    case 'limit':
      return c.chance(0.4)
        ? get('/{db}/_revs_limit')
        : json(
            'PUT',
            '/{db}/_revs_limit',
            c.mostly(['1', '2', '3', '1000'], ['0', '-1', '"2"', 'x', '', '1.5', 'null', '[]'], 0.2),
          )
    case 'infos':
      return c.chance(0.5)
        ? get('/{db}/_purged_infos_limit')
        : json(
            'PUT',
            '/{db}/_purged_infos_limit',
            c.mostly(['100', '1'], ['0', '-1', '"2"', 'x', '', '1.5', 'null'], 0.5),
          )
    case 'purged':
      return get('/{db}/_purged_infos')
    case 'changes':
      return get(
        `/{db}/_changes${query(c, { style: () => 'all_docs', include_docs: flag, conflicts: flag, descending: flag, since: () => '{seq}' }, 2)}`,
      )
    case 'all':
      return get(
        `/{db}/_all_docs${query(c, { include_docs: flag, conflicts: flag, keys: () => '["h0","h1","odd","none"]' }, 2)}`,
      )
    case 'info':
      return get('/{db}')
  }
}

export const histories: Family = { begin: () => [], step, steps: 24 }
