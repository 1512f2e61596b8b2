/** A database with everything that a schema has to keep, for tests of upgrades. */
import type { TestServer } from './server.ts'

/** The hash of the revisions of a generation. */
export const ID = (n: number) => String(n).repeat(32)

/** Documents of every kind, written by ordinary calls. */
export async function fill({ request }: Pick<TestServer, 'request'>, db: string): Promise<void> {
  await request('PUT', `/${db}`)
  const edits = (round: number) =>
    Array.from({ length: 15 }, (_, n) => ({
      _id: `doc${n}`,
      round,
      ...(round > 1 && { _revisions: { start: 2, ids: [ID(2), ID(1)] } }),
      _rev: `${round}-${ID(round)}`,
      ...(n === 7 && round === 2 && { _deleted: true }),
      big: '9007199254740993',
    }))
  for (const round of [1, 2]) {
    await request('POST', `/${db}/_bulk_docs`, { body: { new_edits: false, docs: edits(round) } })
  }
  const rival = {
    _id: 'doc3',
    _rev: `2-${ID(9)}`,
    _revisions: { start: 2, ids: [ID(9), ID(1)] },
    rival: true,
  }
  await request('POST', `/${db}/_bulk_docs`, { body: { new_edits: false, docs: [rival] } })
  const files = {
    'a.txt': { content_type: 'text/plain', data: Buffer.from('small').toString('base64') },
    'b.bin': { content_type: 'application/x-b', data: Buffer.alloc(700_000, 'b').toString('base64') },
  }
  await request('PUT', `/${db}/attached`, { body: { _attachments: files } })
  await request('PUT', `/${db}/_design/all`, {
    body: { views: { all: { map: 'function (doc) { emit(doc.round) }' } } },
  })
  await request('PUT', `/${db}/_local/checkpoint`, { body: { session_id: 's', history: [1, 2] } })
  await request('PUT', `/${db}/_security`, {
    body: { admins: { names: ['anna'], roles: [] }, members: { names: [], roles: [] } },
  })
  await request('PUT', `/${db}/_revs_limit`, { body: '500' })
  await request('POST', `/${db}/_purge`, { body: { doc9: [`2-${ID(2)}`] } })
}

/** Everything that can be read from a database. */
export async function everythingIn(
  { request }: Pick<TestServer, 'request'>,
  db: string,
): Promise<Record<string, string>> {
  const { json: list } = await request('GET', `/${db}/_changes?style=all_docs`)
  const ids = (list.results as { id: string }[]).map(({ id }) => encodeURIComponent(id))
  const paths = [
    '/_all_docs?include_docs=true&conflicts=true&update_seq=true',
    '/_changes?style=all_docs&include_docs=true&attachments=true',
    '/_changes?since=5&limit=3',
    '/_local_docs?include_docs=true',
    '/_local/checkpoint',
    '/_security',
    '/_revs_limit',
    '/_purged_infos',
    '/_design/all/_view/all?reduce=false',
    '/attached/b.bin',
    `/doc1?rev=1-${ID(1)}`,
    ...ids.map((id) => `/${id}?open_revs=all&revs=true&attachments=true`),
    ...ids.map((id) => `/${id}?revs_info=true&deleted_conflicts=true&conflicts=true`),
  ]
  const told: Record<string, string> = {}
  for (const path of paths) {
    const { status, text } = await request('GET', `/${db}${path}`, {
      headers: { accept: 'application/json' },
    })
    told[path] = `${status} ${text}`
  }
  const { doc_count, doc_del_count, update_seq, purge_seq, sizes } = (await request('GET', `/${db}`)).json
  told.info = JSON.stringify({ doc_count, doc_del_count, update_seq, purge_seq, external: sizes.external })
  return told
}
